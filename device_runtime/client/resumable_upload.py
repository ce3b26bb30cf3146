"""Resumable upload of an update by the tus 1.0 protocol."""

import base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phonograd.device_runtime.base.errors import ServerRefusedError, ServerUnreachableError, UpdateError, WeightsError
from phonograd.device_runtime.base.files import regular_file, sha256_of_file
from phonograd.device_runtime.client.connection import (
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
from phonograd.device_runtime.update.update_file import FORMAT

SEND_BYTES = 1 << 18
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


@dataclass(frozen=True)
class _Upload:
    """A file to send, and its URL at the server."""

    path: Path
    nbytes: int
    url: str
    phone: str | None


def upload_update(
    server: Server, path: Path, phone: str | None, progress: Progress | None = None, retry: RetryPolicy | None = None
) -> UploadReceipt:
    """Send the update at `path`, streamed from disk. phone: the sender (see PHONE_NAME); None is the token's phone.

    An interrupted upload resumes at the first byte that the server does not have, in this call as `retry` allows, or in
    a later one. While the round is closing, it waits as the server says. Sending the same update again is safe: the
    server counts it once and returns the same receipt. Raises
    UpdateError if the file is not an update or `phone` is not a valid name, ServerRefusedError, ServerUnreachableError.
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
    headers = announcement(facts, nbytes, phone)
    retry = retry or RetryPolicy()
    closing = Closing(retry)
    while True:
        try:
            return _sent(server, path, nbytes, phone, headers, progress, retry)
        except ServerRefusedError as error:
            if not closing.wait_after(error):
                raise


def _sent(
    server: Server,
    path: Path,
    nbytes: int,
    phone: str | None,
    headers: dict[str, str],
    progress: Progress | None,
    retry: RetryPolicy,
) -> UploadReceipt:
    """Announce the update, or find it at the server, and send what is missing there."""
    with http_client(server) as client:
        response = client.post("/v1/uploads", headers=headers)
        if response.status_code != 201:
            raise refusal(server, response)
        with expected_fields(server):
            upload = _Upload(path, nbytes, response.headers["Location"], phone)
            offset = int(response.headers["Upload-Offset"])
    _send_all(server, upload, offset, progress, retry)
    outcome = _outcome(server, upload)
    if outcome.get("state") == "receiving":
        # The server has all bytes but has not decided: its disk failed then, or it is still reading after the answer to
        # an earlier request was lost. An empty request waits for the decision or triggers it.
        _send(server, upload, nbytes, progress)
        outcome = _outcome(server, upload)
    return _receipt(server, outcome)


def _named(phone: str | None) -> dict[str, str]:
    return {} if phone is None else {PHONE_HEADER: phone}


def update_metadata(path: Path) -> dict[str, str]:
    """An update's metadata; the server checks them. Needs no native library, which not every system has.

    Raises UpdateError for a file that is damaged or no update.
    """
    try:
        with TensorFile(path) as file:
            if file.metadata.get("format") != FORMAT:
                raise UpdateError(f"{path}: not an update: no format={FORMAT}; write one with: phonograd train")
            file.take_checksum()
            return file.metadata
    except WeightsError as error:
        raise UpdateError(str(error)) from error


def announcement(facts: Mapping[str, str], nbytes: int, phone: str | None) -> dict[str, str]:
    """The headers that announce an upload of so many bytes. facts: what its Upload-Metadata say."""
    metadata = ",".join(f"{key} {base64.b64encode(value.encode()).decode()}" for key, value in facts.items())
    return {**TUS, "Upload-Length": str(nbytes), "Upload-Metadata": metadata, **_named(phone)}


def _send_all(server: Server, upload: _Upload, offset: int, progress: Progress | None, retry: RetryPolicy) -> None:
    """Send from `offset` on until the server has all bytes. If the connection breaks, ask for the offset and resume."""
    retries = Retries(retry)
    while offset < upload.nbytes:
        try:
            _send(server, upload, offset, progress)
            return
        except ServerUnreachableError:
            if not retries.wait():
                raise
        try:
            found = _offset(server, upload)
        except ServerUnreachableError:
            continue  # the next attempt to send counts it
        if found > offset:
            retries.reset()
        offset = found


def _send(server: Server, upload: _Upload, offset: int, progress: Progress | None) -> None:
    headers = {
        **TUS,
        "Upload-Offset": str(offset),
        "Content-Type": TUS_BODY_TYPE,
        "Content-Length": str(upload.nbytes - offset),
        **_named(upload.phone),
    }
    with http_client(server) as client:
        response = client.patch(upload.url, content=_pieces(upload, offset, progress), headers=headers)
    if response.status_code == 204:
        return
    if "Upload-Offset" in response.headers:
        raise ServerUnreachableError(str(refusal(server, response)))  # another request was first, or bytes changed
    raise refusal(server, response)


def _pieces(upload: _Upload, offset: int, progress: Progress | None) -> Iterator[bytes]:
    with regular_file(upload.path) as file:
        file.seek(offset)
        while piece := file.read(SEND_BYTES):
            yield piece
            offset += len(piece)
            if progress is not None:
                progress(offset, upload.nbytes)


def _offset(server: Server, upload: _Upload) -> int:
    with http_client(server) as client:
        response = client.head(upload.url, headers={**TUS, **_named(upload.phone)})
    if response.status_code == 409:  # an earlier request of ours, whose connection broke, reached the server later
        raise ServerUnreachableError(f"{server}: the offset of the upload is not known yet; try again")
    if response.status_code != 200:
        raise refusal(server, response)
    with expected_fields(server):
        return int(response.headers["Upload-Offset"])


def _outcome(server: Server, upload: _Upload) -> dict[str, Any]:
    with http_client(server) as client:
        return json_object(server, client.get(upload.url, headers=_named(upload.phone)), 200)


def _receipt(server: Server, document: dict[str, Any]) -> UploadReceipt:
    with expected_fields(server):
        receipt: dict[str, Any] | None = document["receipt"]
        if receipt is None:
            raise ServerRefusedError(f"{server}: refused ({document['status']}): {document['reason']}")
        return UploadReceipt(
            round=int(receipt["round"]),
            phone=str(receipt["phone"]),
            accepted=None if receipt["accepted"] is None else int(receipt["accepted"]),
            clients_per_round=int(receipt["clients_per_round"]),
            round_closed=bool(receipt["round_closed"]),
            model_sha256=receipt["model_sha256"],
            bytes=int(receipt["bytes"]),
        )
