"""Receiving a body: straight to disk, hashed on the way, never held in memory."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from starlette.requests import ClientDisconnect, Request

from phonograd.device_runtime.base.files import storage_errors
from phonograd.server_agg.http.thread_pools import ThreadPool
from phonograd.server_agg.refusals import RequestError, UploadInterruptedError
from phonograd.server_agg.storage.upload_bytes import Sink

# Body bytes gathered before a worker thread hashes and writes them, while the next are gathered.
WRITE_BYTES = 1 << 19
# What has come is written this often all the same, also while the phone stalls: a server that is killed loses no more.
WRITE_SECONDS = 1.0


class Receiving:
    """One request's body on its way to the end of a file; `nbytes` says at any time how much of it has arrived.

    `digests`, hashlib's, take every byte, in threads of `pool`. `interrupt` makes `into` give up: another request goes
    on with the upload.
    """

    def __init__(self, request: Request, digests: Sequence[Any], idle_seconds: float, pool: ThreadPool):
        self.nbytes = 0
        self._sink: Sink | None = None
        self._request = request
        self._digests = digests
        self._idle_seconds = idle_seconds
        self._pool = pool
        self._interrupted = asyncio.Event()
        self._gathered = bytearray()
        self._storing: asyncio.Future[None] | None = None

    def interrupt(self) -> None:
        """Make `into` end with a RequestError (409), what has arrived written."""
        self._interrupted.set()

    @property
    def uncounted(self) -> int:
        """Number of bytes that the ledger does not have yet."""
        return self.nbytes - (0 if self._sink is None else self._sink.counted)

    async def into(self, path: Path, opened: Callable[[], Sink], limit: int) -> None:
        """Append the body, of `limit` bytes at most, to an upload. path: its name, for errors.

        What arrived is stored, whatever is raised: RequestError (408 if nothing comes for the idle time, 409 when
        interrupted, 413 for more bytes than expected), UploadInterruptedError (the phone went away), StorageError.
        """
        with storage_errors(path), contextlib.closing(self):
            try:
                await self._receive(opened, limit)
            except ClientDisconnect as error:
                raise UploadInterruptedError(
                    f"the connection broke off after {self.nbytes} of {limit} bytes"
                ) from error
            finally:  # what is still being written can be neither given up nor interrupted
                await self._wait_until_stored()
                await self._pool.run(self._store, opened, self._gathered)

    def close(self) -> None:
        """Close the upload's end; what was written stays."""
        if self._sink is not None:
            self._sink.close()

    async def _receive(self, opened: Callable[[], Sink], limit: int) -> None:
        now, chunks = asyncio.get_running_loop().time, self._request.stream()
        coming = asyncio.ensure_future(anext(chunks, None))
        interrupted = asyncio.ensure_future(self._interrupted.wait())
        idle_at, write_at = now() + self._idle_seconds, now() + WRITE_SECONDS
        try:
            while True:
                until = min(idle_at, write_at) if self._gathered else idle_at
                await asyncio.wait((coming, interrupted), timeout=until - now(), return_when=asyncio.FIRST_COMPLETED)
                if coming.done():
                    chunk = coming.result()
                    if chunk is None:
                        return
                    if self.nbytes + len(chunk) > limit:
                        raise RequestError(413, f"a body of at most {limit} bytes expected, more are coming")
                    self.nbytes += len(chunk)
                    self._gathered += chunk
                    coming, idle_at = asyncio.ensure_future(anext(chunks, None)), now() + self._idle_seconds
                if interrupted.done():
                    raise RequestError(409, "another request goes on with this upload; ask for its offset")
                if now() >= idle_at:
                    raise RequestError(
                        408, f"nothing came for {self._idle_seconds:g} s, {self.nbytes} of {limit} bytes in"
                    )
                if len(self._gathered) >= WRITE_BYTES or now() >= write_at:
                    await self._wait_until_stored()
                    gathered, self._gathered = self._gathered, bytearray()
                    self._storing = asyncio.ensure_future(self._pool.run(self._store, opened, gathered))
                    write_at = now() + WRITE_SECONDS
        finally:
            coming.cancel()
            interrupted.cancel()

    async def _wait_until_stored(self) -> None:
        if self._storing is not None:
            await asyncio.shield(self._storing)  # a thread that writes can't be cancelled

    def _store(self, opened: Callable[[], Sink], data: bytearray) -> None:
        if self._sink is None:
            self._sink = opened()
        sink, view = self._sink, memoryview(data)
        for digest in self._digests:
            digest.update(view)
        while view:
            view = view[sink.write(view) :]
