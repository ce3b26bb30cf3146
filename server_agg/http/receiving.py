"""Receiving an upload: checked headers, then the body straight to disk, hashed on the way, never held in memory."""

import asyncio
import base64
import binascii
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request

from device_runtime.files import storage_errors
from device_runtime.server_protocol import PHONE_HEADER, PHONE_NAME, PHONE_NAME_RULE
from server_agg.refusals import RequestError, UploadBrokenError
from server_agg.storage.ledger import Transfer

LENGTH = re.compile(r"[0-9]{1,18}\Z")
DIGEST = re.compile(r"(?:^|,)\s*sha-256=:([A-Za-z0-9+/=]+):\s*(?:,|\Z)")  # other algorithms may stand beside it
WRITE_BYTES = 1 << 20  # body bytes gathered before a worker thread hashes and writes them


@dataclass(frozen=True)
class UploadHeaders:
    """What an upload's headers announce: the phone's name, the body's size and its hex SHA-256."""

    phone: str
    nbytes: int
    sha256: str

    @classmethod
    def parse(cls, headers: Headers, limit: int) -> "UploadHeaders":
        """Raises RequestError: 400 for what is missing or malformed, 411 without a length, 413 above `limit` bytes."""
        phone = headers.get(PHONE_HEADER, "")
        if not PHONE_NAME.match(phone):
            raise RequestError(400, f"{PHONE_HEADER}: {PHONE_NAME_RULE} expected, found {phone[:80]!r}")
        length = headers.get("Content-Length", "")
        if not LENGTH.match(length):
            raise RequestError(411, f"Content-Length expected, found {length[:80]!r}; send the update not chunked")
        nbytes = int(length)
        if nbytes > limit:
            raise RequestError(413, f"a body of at most {limit} bytes expected, found {nbytes}; is it an update?")
        return cls(phone, nbytes, _digest(headers.get("Content-Digest", "")))


def _digest(text: str) -> str:
    match = DIGEST.search(text)
    try:
        raw = base64.b64decode(match[1], validate=True) if match else b""
    except binascii.Error:
        raw = b""
    if len(raw) != 32:
        raise RequestError(
            400, f"Content-Digest: sha-256=:BASE64: of 32 bytes (RFC 9530) expected, found {text[:80]!r}"
        )
    return raw.hex()


class Receiving:
    """One upload on its way in; `transfer` says at any time what has arrived so far.

    uvicorn drops what it has read but not handed over when a connection breaks, 64 KiB at most: those go uncounted.
    """

    def __init__(self, request: Request):
        self._request = request
        self._started = time.monotonic()
        self._digest = sha256()
        self._bytes = 0

    @property
    def transfer(self) -> Transfer:
        """Bytes received and seconds since the first."""
        return Transfer(self._bytes, header_bytes(self._request), time.monotonic() - self._started)

    async def into(self, path: Path, announced: UploadHeaders, idle_seconds: float) -> None:
        """Write the body to a new file at `path`.

        Raises RequestError (400 for another hash than announced, 408 if nothing comes for `idle_seconds`, 413 for more
        bytes than announced), UploadBrokenError (the phone went away), StorageError; deleting the file is the caller's.
        """
        with storage_errors(path), path.open("xb") as file:
            await self._receive(file, announced, idle_seconds)
        if self._digest.hexdigest() != announced.sha256:
            raise RequestError(
                400,
                f"Content-Digest: SHA-256 {announced.sha256[:12]}… expected, the {self._bytes} bytes received have "
                f"{self._digest.hexdigest()[:12]}…; they changed on their way, send again",
            )

    async def _receive(self, file: BinaryIO, announced: UploadHeaders, idle_seconds: float) -> None:
        waiting = bytearray()
        async for chunk in self._chunks(announced.nbytes, idle_seconds):
            self._bytes += len(chunk)
            if self._bytes > announced.nbytes:
                raise RequestError(413, f"a body of {announced.nbytes} bytes was announced, more are coming")
            waiting += chunk
            if len(waiting) >= WRITE_BYTES:
                await run_in_threadpool(self._store, file, bytes(waiting))
                waiting.clear()
        await run_in_threadpool(self._store, file, bytes(waiting))

    def _store(self, file: BinaryIO, data: bytes) -> None:
        self._digest.update(data)
        file.write(data)

    async def _chunks(self, nbytes: int, idle_seconds: float) -> AsyncIterator[bytes]:
        stream = self._request.stream()
        try:
            while chunk := await asyncio.wait_for(anext(stream), idle_seconds):
                yield chunk
        except ClientDisconnect as error:
            raise UploadBrokenError(f"the connection broke off after {self._bytes} of {nbytes} bytes") from error
        except asyncio.TimeoutError as error:
            raise RequestError(
                408, f"nothing came for {idle_seconds:g} s, {self._bytes} of {nbytes} bytes in"
            ) from error


def header_bytes(request: Request) -> int:
    """Bytes of the request line and the headers as they stand on an HTTP/1.1 wire."""
    target = request.scope.get("raw_path", b"") + (b"?" + query if (query := request.scope["query_string"]) else b"")
    line = len(request.method) + 1 + len(target) + len(" HTTP/1.1\r\n")
    return line + sum(len(name) + len(value) + 4 for name, value in request.headers.raw) + 2
