"""Receiving a body: straight to disk, hashed on the way, never held in memory."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from starlette.requests import ClientDisconnect, Request

from phonograd.device_runtime.base.files import storage_errors
from phonograd.server_agg.http.thread_pools import ThreadPool
from phonograd.server_agg.refusals import RequestError, UploadInterruptedError
from phonograd.server_agg.storage.upload_bytes import Sink

# Body bytes gathered before a worker thread hashes and writes them, while the next are gathered.
WRITE_BYTES = 1 << 19
# What has come is written this often all the same, also while the phone stalls: a server that is killed loses no more.
WRITE_SECONDS = 1.0


class Digest(Protocol):
    """A hash that takes bytes, as hashlib makes them."""

    def update(self, data: bytes, /) -> None:
        """Take more bytes."""


class Receiving:
    """One request's body on its way to the end of a file; `nbytes` says at any time how much of it has arrived.

    `digests` take every byte, in threads of `pool`. `interrupt` makes `into` give up: another request goes on with the
    upload.
    """

    def __init__(self, request: Request, digests: Sequence[Digest], idle_seconds: float, pool: ThreadPool):
        self.nbytes = 0
        self._sink: Sink | None = None
        self._request = request
        self._digests = digests
        self._idle_seconds = idle_seconds
        self._pool = pool
        self._interrupted = asyncio.Event()
        self._gathered, self._storing = bytearray(), _nothing()
        self._coming = True  # else what has come is being written, which cannot be given up

    def interrupt(self) -> None:
        """Make `into` end with a RequestError (409), what has arrived written."""
        self._interrupted.set()

    @property
    def uncounted(self) -> int:
        """How many of the bytes the ledger has not yet."""
        return self.nbytes - (0 if self._sink is None else self._sink.counted)

    async def into(self, path: Path, opened: Callable[[], Sink], limit: int) -> None:
        """Append the body, of `limit` bytes at most, to an upload. path: its name, for errors.

        What arrived is stored, whatever is raised: RequestError (408 if nothing comes for the idle time, 409 when
        interrupted, 413 for more bytes than expected), UploadInterruptedError (the phone went away), StorageError.
        """
        with storage_errors(path), contextlib.closing(await self._pool.run(opened)) as sink:
            self._sink = sink
            await self._watched(asyncio.ensure_future(self._receive(sink, limit)), limit)

    async def _watched(self, receiving: "asyncio.Future[None]", limit: int) -> None:
        """Wait for `receiving`; give it up when interrupted, or when nothing came for the idle time."""
        interrupted, refusal = asyncio.ensure_future(self._interrupted.wait()), None
        try:
            while self._coming and not receiving.done() and refusal is None:
                so_far = self.nbytes
                await asyncio.wait(
                    (receiving, interrupted), timeout=self._idle_seconds, return_when=asyncio.FIRST_COMPLETED
                )
                if interrupted.done() or self.nbytes == so_far:
                    refusal = self._refusal(limit)
        finally:
            interrupted.cancel()
            given_up = self._coming and receiving.cancel()
            await asyncio.wait((receiving,))  # what it had gathered is written then
        if not given_up or not receiving.cancelled():
            receiving.result()
        if given_up and refusal is not None:
            raise refusal

    async def _receive(self, sink: Sink, limit: int) -> None:
        writing = asyncio.ensure_future(self._write_every_second(sink))
        try:
            async for chunk in self._request.stream():
                if self.nbytes + len(chunk) > limit:
                    raise RequestError(413, f"a body of at most {limit} bytes expected, more are coming")
                self.nbytes += len(chunk)
                self._gathered += chunk
                if len(self._gathered) >= WRITE_BYTES:
                    while not self._storing.done():
                        await asyncio.shield(self._storing)  # a thread that writes can't be cancelled
                    self._storing.result()
                    self._begin_write(sink)
        except ClientDisconnect as error:
            raise UploadInterruptedError(f"the connection broke off after {self.nbytes} of {limit} bytes") from error
        finally:
            self._coming = False
            writing.cancel()
            await self._storing
            await self._pool.run(self._store, sink, self._gathered)

    async def _write_every_second(self, sink: Sink) -> None:
        while True:
            await asyncio.sleep(WRITE_SECONDS)
            if self._gathered and self._storing.done() and self._storing.exception() is None:
                self._begin_write(sink)

    def _begin_write(self, sink: Sink) -> None:
        gathered, self._gathered = self._gathered, bytearray()
        self._storing = asyncio.ensure_future(self._pool.run(self._store, sink, gathered))

    def _store(self, sink: Sink, data: bytearray) -> None:
        view = memoryview(data)
        for digest in self._digests:
            digest.update(view)  # type: ignore[arg-type]  # any buffer will do
        while view:
            view = view[sink.write(view) :]

    def _refusal(self, limit: int) -> RequestError:
        if self._interrupted.is_set():
            return RequestError(409, "another request goes on with this upload; ask for its offset")
        return RequestError(408, f"nothing came for {self._idle_seconds:g} s, {self.nbytes} of {limit} bytes in")


def _nothing() -> "asyncio.Future[None]":
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    done.set_result(None)
    return done
