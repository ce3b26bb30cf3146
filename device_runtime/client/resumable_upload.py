"""Resumable upload of an update by the tus 1.0 protocol."""

import base64
import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx
import msgspec

from phonograd.device_runtime.base.errors import ServerRefusedError, ServerUnreachableError, UpdateError, WeightsError
from phonograd.device_runtime.base.files import regular_file, sha256_of_file
from phonograd.device_runtime.client.connection import (
    MIN_PIECE_BYTES,
    Closing,
    Retries,
    RetryPolicy,
    Server,
    expected_fields,
    http_client,
    json_object,
    refusal,
)
from phonograd.device_runtime.client.protocol import (
    PHONE_HEADER,
    PHONE_NAME,
    PHONE_NAME_RULE,
    TUS_BODY_TYPE,
    TUS_VERSION,
)
from phonograd.device_runtime.formats.tensor_file import TensorFile
from phonograd.device_runtime.masked import FORMAT as MASKED_FORMAT
from phonograd.device_runtime.update.update_file import FORMAT

SEND_BYTES = 1 << 18
SMALL_BYTES = 1 << 20  # an update of at most this is sent with its announcement, whatever the server has of it
LARGE_PIECE_BYTES = 1 << 23  # at most, once a proxy has refused one: each refusal may cost as much as it refuses
UPLOAD_PATH = re.compile(r"/v1/uploads/[0-9a-f]{32}\Z")
TUS = {"Tus-Resumable": TUS_VERSION}

# Called with (bytes sent so far, bytes in total).
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class UploadReceipt:
    """The server's answer to an update.

    bytes: the size of the update; accepted: the updates that the round has so far, None in a private round;
    model_sha256: the round's result, once it has closed.
    """

    round: int
    phone: str
    accepted: int | None
    clients_per_round: int
    round_closed: bool
    model_sha256: str | None
    bytes: int


def upload_update(
    server: Server, path: Path, phone: str | None, progress: Progress | None = None, retry: RetryPolicy | None = None
) -> UploadReceipt:
    """Send the update at `path`, streamed from disk. phone: the sender (see PHONE_NAME); None is the token's phone.

    Where a proxy refuses what is sent at once (413), it sends ever smaller pieces. An interrupted upload resumes at the
    first byte that the server does not have, in this call as `retry` allows, or in a later one. While the round is
    closing, it waits as the server says. Sending the same update again is safe: the server counts it once and returns
    the same receipt. Raises UpdateError if the file is not an update or `phone` is not a valid name,
    ServerRefusedError, ServerUnreachableError.
    """
    if phone is not None and not PHONE_NAME.match(phone):
        raise UpdateError(f"phone name {phone!r}: {PHONE_NAME_RULE} expected; choose another")
    try:
        nbytes = path.stat().st_size
        sha256 = sha256_of_file(path)
    except OSError as error:
        raise UpdateError(f"{path}: cannot be read: {error.strerror}; expected an update that train wrote") from error
    update = update_metadata(path)
    facts = {"sha256": sha256, **{key: update.get(key, "") for key in ("base_sha256", "round")}}
    retry = retry or RetryPolicy()
    piece = (None if isinstance(server, str) else server.piece_size) or nbytes
    closing, upload = Closing(retry), _Upload(server, path, nbytes, phone, progress, retry, piece)
    while True:
        try:
            return upload.send(announcement(facts, nbytes, phone))
        except ServerRefusedError as error:
            if not closing.wait_after(error):
                raise


def _upload_path(response: httpx.Response) -> str:
    """The upload's path under the server's URL that the user named. A proxy may have added its own prefix and host to
    the Location, or lost them; no other host is asked, and none sees the token.
    """
    path = urlsplit(urljoin(str(response.url), response.headers["Location"])).path
    if not (found := UPLOAD_PATH.search(path)):
        raise ValueError(f"Location: the path of an upload expected, found {path[:80]!r}")
    return found[0]


def _phone_header(phone: str | None) -> dict[str, str]:
    return {} if phone is None else {PHONE_HEADER: phone}


def update_metadata(path: Path) -> dict[str, str]:
    """An update's metadata; the server checks them. Needs no native library, which not every system has.

    Raises UpdateError for a file that is damaged or no update.
    """
    try:
        with TensorFile(path) as file:
            if file.metadata.get("format") not in (FORMAT, MASKED_FORMAT):
                raise UpdateError(f"{path}: not an update: no format={FORMAT}; write one with: phonograd train")
            file.take_checksum()
            return file.metadata
    except WeightsError as error:
        raise UpdateError(str(error)) from error


def announcement(facts: Mapping[str, str], nbytes: int, phone: str | None) -> dict[str, str]:
    """The headers that announce an upload of so many bytes. facts: what its Upload-Metadata say."""
    metadata = ",".join(f"{key} {base64.b64encode(value.encode()).decode()}" for key, value in facts.items())
    return {**TUS, "Upload-Length": str(nbytes), "Upload-Metadata": metadata, **_phone_header(phone)}


class _RefusedPieceError(Exception):
    """A proxy takes no piece of this size."""


@dataclass
class _Upload:
    server: Server
    path: Path
    nbytes: int
    phone: str | None
    progress: Progress | None
    retry: RetryPolicy
    piece: int  # bytes to send at once

    def send(self, headers: dict[str, str]) -> UploadReceipt:
        response = self._announce(headers)
        with expected_fields(self.server):
            if response.status_code == 201 and response.content and (receipt := response.json()["receipt"]) is not None:
                return msgspec.convert(receipt, UploadReceipt)
            url, offset = _upload_path(response), int(response.headers["Upload-Offset"])
        self._send_all(url, offset)
        outcome = self._outcome(url)
        if outcome.get("state") == "receiving":
            # The server has all bytes but has not decided: its disk failed then, or it is still reading after the
            # answer to an earlier request was lost. An empty request waits for the decision or triggers it.
            self._send_from(url, self.nbytes)
            outcome = self._outcome(url)
        with expected_fields(self.server):
            if outcome["receipt"] is None:
                raise ServerRefusedError(f"{self.server}: refused ({outcome['status']}): {outcome['reason']}")
            return msgspec.convert(outcome["receipt"], UploadReceipt)

    def _announce(self, headers: dict[str, str]) -> httpx.Response:
        if self.nbytes <= min(SMALL_BYTES, self.piece):
            body = {"Content-Type": TUS_BODY_TYPE, "Content-Length": str(self.nbytes)}
            refused = (ServerUnreachableError, _RefusedPieceError)
            with contextlib.suppress(*refused), http_client(self.server) as client:
                response = client.post("/v1/uploads", content=self._bytes(0, self.nbytes), headers=headers | body)
                self._check_taken(response, self.nbytes)
                if response.status_code == 201 or "Location" in response.headers:  # else some of it did not arrive
                    return response
                raise refusal(self.server, response)
        with http_client(self.server) as client:
            response = client.post("/v1/uploads", headers=headers)
        if response.status_code != 201:
            raise refusal(self.server, response)
        return response

    def _send_all(self, url: str, offset: int) -> None:
        """Send from `offset` on until the server has all bytes. If the connection breaks, ask for the offset and
        resume.
        """
        retries = Retries(self.retry)
        while offset < self.nbytes:
            try:
                offset += self._send_from(url, offset)
                retries.reset()
                continue
            except _RefusedPieceError:
                continue
            except ServerUnreachableError:
                if not retries.wait():
                    raise
            try:
                found = self._offset(url)
            except ServerUnreachableError:
                continue  # the next attempt to send counts it
            if found > offset:
                retries.reset()
            offset = found

    def _send_from(self, url: str, offset: int) -> int:
        count = min(self.piece, self.nbytes - offset)
        headers = {
            **TUS,
            "Upload-Offset": str(offset),
            "Content-Type": TUS_BODY_TYPE,
            "Content-Length": str(count),
            **_phone_header(self.phone),
        }
        with http_client(self.server) as client:
            response = client.patch(url, content=self._bytes(offset, count), headers=headers)
        if response.status_code == 204:
            return count
        self._check_taken(response, count)
        if "Upload-Offset" in response.headers:  # another request was first, or bytes changed
            raise ServerUnreachableError(str(refusal(self.server, response)))
        raise refusal(self.server, response)

    def _check_taken(self, response: httpx.Response, count: int) -> None:
        """Make pieces smaller where so many bytes are too many for a proxy; a 413 of the server's own is for good."""
        if response.status_code != 413 or "Tus-Resumable" in response.headers:
            return
        if count > MIN_PIECE_BYTES:
            self.piece = max(MIN_PIECE_BYTES, min(count // 2, LARGE_PIECE_BYTES))
            raise _RefusedPieceError
        error = ServerRefusedError(
            f"{self.server}: a proxy before it ({response.headers.get('Server', 'unnamed')[:40]}) refuses a request of "
            f"{count} bytes (413); let it pass {MIN_PIECE_BYTES} or more (nginx: client_max_body_size 0;)"
        )
        error.status = 413
        raise error

    def _bytes(self, offset: int, count: int) -> Iterator[bytes]:
        with regular_file(self.path) as file:
            file.seek(offset)
            end = offset + count
            while piece := file.read(min(SEND_BYTES, end - offset)):
                yield piece
                offset += len(piece)
                if self.progress is not None:
                    self.progress(offset, self.nbytes)

    def _offset(self, url: str) -> int:
        with http_client(self.server) as client:
            response = client.head(url, headers={**TUS, **_phone_header(self.phone)})
        if response.status_code == 409:  # an earlier request of ours, whose connection broke, reached the server later
            raise ServerUnreachableError(f"{self.server}: the offset of the upload is not known yet; try again")
        if response.status_code != 200:
            raise refusal(self.server, response)
        with expected_fields(self.server):
            return int(response.headers["Upload-Offset"])

    def _outcome(self, url: str) -> dict[str, Any]:
        with http_client(self.server) as client:
            return json_object(self.server, client.get(url, headers=_phone_header(self.phone)), 200)
