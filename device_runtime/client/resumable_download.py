"""Resumable download of a model by range requests (RFC 9110, section 14).

Received bytes are kept beside the model's path as `.NAME.SHA256.part`; a later call resumes from them. The hash is that
of all bytes to come: of the model, or of links to it (`pull`).
"""

import glob
import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import httpx

from phonograd.device_runtime.base.errors import ServerRefusedError, ServerUnreachableError, StorageError, WeightsError
from phonograd.device_runtime.base.files import (
    HASH_CHUNK_BYTES,
    WINDOWS,
    lock_file,
    make_parents,
    sha256_of_file,
    storage_errors,
    sync_folder,
)
from phonograd.device_runtime.client.connection import (
    Retries,
    RetryPolicy,
    Server,
    elsewhere_of,
    http_client,
    limit_pieces,
    refusal,
)
from phonograd.device_runtime.client.protocol import ELSEWHERE_HEADER, PHONE_HEADER

ETAG = re.compile(r'(?:W/)?"([0-9a-f]{64})"\Z')
PART = re.compile(r".*\.([0-9a-f]{64})\.part\Z")


@dataclass(frozen=True)
class DownloadedModel:
    """A model on disk: its hex SHA-256, its size in bytes, and how many bytes this call received.

    `changed` is false if the requested model is the known one; then nothing was written and `nbytes` is 0. links: how
    many were applied to another model; 0 if the model was fetched whole.
    """

    sha256: str
    nbytes: int
    changed: bool
    received: int = 0
    links: int = 0


def download_model(
    server: Server,
    path: Path,
    known_sha256: str | None = None,
    *,
    sha256: str | None = None,
    phone: str | None = None,
    retry: RetryPolicy | None = None,
    most_bytes: int | None = None,
) -> DownloadedModel:
    """Fetch model `sha256`, or the current one, to `path` atomically; fetch nothing if it is `known_sha256`.

    An interrupted download resumes at the first missing byte, in this call as `retry` allows, or in a later one. phone:
    a name for the server's ledger. No more bytes are taken than the answer announces, nor than `most_bytes`. Raises
    WeightsError if the bytes have another hash than announced, StorageError if writing fails or another process is
    fetching the same model; then `path` is unchanged.
    """
    url = f"/v1/models/{sha256}" if sha256 else "/v1/model"
    return Download(server, path, url, sha256, phone, known_sha256, most_bytes).fetch(retry)


class Download:
    """The download of `url` to `path`, where its bytes go once all are here and have the announced hash.

    sha256: that hash, if it is known before; most_bytes: the size at most, if that is. A subclass may make something
    else of the bytes (`finish`).
    received: bytes received over the network so far; reached: the offset in the whole up to which they go.
    """

    def __init__(
        self,
        server: Server,
        path: Path,
        url: str,
        sha256: str | None,
        phone: str | None,
        known_sha256: str | None = None,
        most_bytes: int | None = None,
    ):
        self.received = self.reached = 0
        self.path = path
        self._server = server
        self._known = known_sha256
        self._sha256 = sha256
        self._url = url
        self._most = most_bytes
        self._headers = {"If-None-Match": f'"{known_sha256}"'} if known_sha256 else {}
        if phone is not None:
            self._headers[PHONE_HEADER] = phone

    def fetch(self, retry: RetryPolicy | None) -> DownloadedModel:
        """Fetch what is missing, with retries. Raises as `download_model` does."""
        retries = Retries(retry or RetryPolicy())
        while True:
            before = self.reached
            try:
                return self._attempt()
            except ServerUnreachableError:
                if self.reached > before:  # receiving the same bytes again is no progress
                    retries.reset()
                if self.received == 0 or not retries.wait():
                    raise

    def finish(self, part: Path, sha256: str) -> DownloadedModel:
        """Move `part`, which is complete and has this hash, to the path."""
        with storage_errors(self.path):
            part.replace(self.path)
            self.remove_parts()
            sync_folder(self.path.parent)
            nbytes = self.path.stat().st_size
        return DownloadedModel(sha256, nbytes, changed=True, received=self.received)

    def remove_parts(self) -> None:
        """Remove what is here of this and of other downloads to the path."""
        for part in self._parts():
            part.unlink(missing_ok=True)

    def _attempt(self) -> DownloadedModel:
        begun = self._begun_part()
        offset = begun.stat().st_size if begun else 0
        headers = dict(self._headers)
        if begun and offset:
            headers |= {"Range": f"bytes={offset}-", "If-Range": f'"{_hash_in(begun)}"'}
        with (
            http_client(self._server, saving=True) as client,
            client.stream("GET", self._url, headers=headers) as response,
        ):
            if response.status_code == 304 and self._known:
                return DownloadedModel(self._known, 0, changed=False)
            if response.status_code == 416 and begun and offset:
                return self._nothing_missing(begun)
            if response.status_code not in (200, 206):
                response.read()
                raise refusal(self._server, response)
            tag = ETAG.match(response.headers.get("ETag", ""))
            if tag is None or self._sha256 not in (None, tag[1]):
                raise ServerRefusedError(
                    f"{self._server}: a model's hash expected as ETag, found another; is it phonograd serve?"
                )
            part, elsewhere = self._part(tag[1]), response.headers.get(ELSEWHERE_HEADER)
            if elsewhere is None:
                return self._save(response, part, self._offset(response, offset), tag[1])
        offset = offset if part == begun else 0
        return self._fetch_elsewhere(elsewhere, part, offset, tag[1])

    def _fetch_elsewhere(self, url: str, part: Path, offset: int, sha256: str) -> DownloadedModel:
        """Fetch the body where the server says it is: without our headers, the token above all, and never from a third
        place. The hash is the server's.
        """
        server = elsewhere_of(self._server, url)
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        with http_client(server, saving=True) as client, client.stream("GET", url, headers=headers) as response:
            if response.status_code not in (200, 206):
                raise ServerRefusedError(
                    f"{server}, where {self._server} keeps its models: the model expected, found HTTP status "
                    f"{response.status_code}; try again, and tell the server's operator if that does not help"
                )
            return self._save(response, part, self._offset(response, offset), sha256)

    def _offset(self, response: httpx.Response, offset: int) -> int:
        """Return where the response's body begins: at `offset`, as requested, or at 0."""
        if response.status_code == 200:
            return 0
        if not response.headers.get("Content-Range", "").startswith(f"bytes {offset}-"):
            raise ServerRefusedError(f"{self._server}: bytes from {offset} expected, found others")
        return offset

    def _announced_bytes(self, response: httpx.Response, offset: int) -> int:
        """Return how many bytes follow the first `offset`. Raises ServerRefusedError for none, or too many."""
        length = response.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            raise ServerRefusedError(
                f"{self._server}: its model's Content-Length expected, found none; does a proxy remove it?"
            )
        if self._most is not None and offset + int(length) > self._most:
            raise ServerRefusedError(
                f"{self._server}: a model of at most {self._most} bytes expected, found {offset + int(length)}; give "
                "the artifacts that the server was started with"
            )
        return int(length)

    def _part(self, sha256: str) -> Path:
        return self.path.with_name(f".{self.path.name}.{sha256}.part")

    def _parts(self) -> list[Path]:
        files = self.path.parent.glob(f".{glob.escape(self.path.name)}.*.part")
        return [part for part in files if PART.match(part.name)]

    def _begun_part(self) -> Path | None:
        if self._sha256 is None:
            return max(self._parts(), key=lambda part: part.stat().st_mtime, default=None)
        part = self._part(self._sha256)
        return part if part.is_file() else None

    def _save(self, response: httpx.Response, part: Path, offset: int, sha256: str) -> DownloadedModel:
        """Write the response's bytes to the partial file after the first `offset`; remove it if writing fails."""
        announced = self._announced_bytes(response, offset)
        make_parents(part)
        with storage_errors(part), part.open("a+b") as file:
            _lock(file, part)
            try:
                with storage_errors(part):
                    file.truncate(offset)
                    digest = _digest_of(file)
                    # Pieces as they arrive: a fixed size would delay bytes.
                    for piece in limit_pieces(self._server, response.iter_bytes(), announced):
                        self.received += len(piece)
                        digest.update(piece)
                        file.write(piece)
                        offset += len(piece)
                        self.reached = max(self.reached, offset)
                    file.flush()
                    os.fsync(file.fileno())
            except (StorageError, ServerRefusedError):
                _release(file)
                part.unlink(missing_ok=True)
                raise
            _release(file)
            if digest.hexdigest() != sha256:
                part.unlink()
                raise WeightsError(
                    f"model from {self._server}: SHA-256 {sha256[:12]}… expected, the {offset} bytes received "
                    f"have {digest.hexdigest()[:12]}…; fetch it again"
                )
            return self.finish(part, sha256)

    def _nothing_missing(self, part: Path) -> DownloadedModel:
        """The partial file is as long as the model: either it is complete, or it is wrong and removed."""
        if sha256_of_file(part) == _hash_in(part):
            return self.finish(part, _hash_in(part))
        part.unlink()
        return self._attempt()


def _hash_in(part: Path) -> str:
    match = PART.match(part.name)
    assert match is not None
    return match[1]


def _lock(file: BinaryIO, part: Path) -> None:
    """Lock the partial file. Raises StorageError if another process has it, or has just completed and renamed it."""
    try:
        lock_file(file.fileno())
        if not os.path.samestat(part.stat(), os.fstat(file.fileno())):
            raise FileNotFoundError
    except OSError as error:
        raise StorageError(f"{part}: another process is fetching this model; wait until it has finished") from error


def _release(file: BinaryIO) -> None:
    """Close the file where none is moved or removed while it is open; elsewhere its lock holds until it has moved."""
    if WINDOWS:
        file.close()


def _digest_of(file: BinaryIO) -> Any:
    digest = hashlib.sha256()
    file.seek(0)
    while chunk := file.read(HASH_CHUNK_BYTES):
        digest.update(chunk)
    return digest
