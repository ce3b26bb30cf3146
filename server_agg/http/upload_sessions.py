"""Uploads that requests are at: one request at a time adds bytes to an upload, and the last of them settle it."""

import asyncio
import contextlib
import hashlib
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request

from phonograd.device_runtime.base.errors import UpdateError
from phonograd.server_agg.http import tus
from phonograd.server_agg.http.receiving import Receiving
from phonograd.server_agg.http.thread_pools import ThreadPools
from phonograd.server_agg.http.wire import wire_of
from phonograd.server_agg.refusals import RequestError, UploadInterruptedError
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.rounds.responses import Receipt
from phonograd.server_agg.rounds.uploads import UploadRecord

# Uploads whose hash so far is kept in memory; those of others are read again from disk.
MAX_REMEMBERED = 1000


@dataclass
class UploadSession:
    """An upload that requests of this server's life have touched: what its bytes hash to, and who is adding some."""

    digest: Any = None  # of the bytes so far; None: not known, until they are read again
    receiving: Receiving | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    requests: int = 0  # so far
    current_request: int = 0  # which of them has the lock
    active_requests: int = 0  # requests that are at it now

    def overtaken(self) -> bool:
        """Return whether a newer request waits for the one that has the lock."""
        return self.current_request != self.requests


class UploadSessions:
    """The uploads of an application. A connection that brings nothing for `idle_seconds` is given up."""

    def __init__(self, coordinator: Coordinator, idle_seconds: float, pools: ThreadPools):
        self._coordinator = coordinator
        self._uploads = coordinator.uploads
        self._idle_seconds = idle_seconds
        self._pools = pools
        self._sessions: dict[str, UploadSession] = {}  # the one used last comes last

    @contextlib.asynccontextmanager
    async def exclusively(self, identifier: str) -> AsyncIterator[UploadSession]:
        """An upload for this request alone; raises RequestError (409) if a newer one came while it waited.

        The phone has a new connection: whatever still waits on an older one waits in vain.
        """
        session = self._sessions[identifier] = self._sessions.pop(identifier, UploadSession())
        session.requests += 1
        mine = session.requests
        session.active_requests += 1
        try:
            if session.receiving is not None:
                session.receiving.interrupt()
            async with session.lock:
                session.current_request = mine
                if session.overtaken():
                    raise RequestError(409, "another request goes on with this upload; ask for its offset")
                yield session
        finally:
            session.active_requests -= 1
            self._forget()

    def _forget(self) -> None:
        unused = (identifier for identifier, session in self._sessions.items() if not session.active_requests)
        for identifier in list(itertools.islice(unused, max(0, len(self._sessions) - MAX_REMEMBERED))):
            del self._sessions[identifier]

    async def append(
        self, session: UploadSession, upload: UploadRecord, request: Request, checksum: tus.Checksum | None
    ) -> Receipt | None:
        """Add a request's body to an upload that it has for itself, and settle it with the last byte: its receipt.

        What arrived is stored and counted, whatever is raised, except bytes that nothing can check any more: those of a
        request with a checksum that broke off, if no hash of the whole was announced. Raises what `Receiving.into` and
        `Coordinator.ingest` raise, and RequestError (460) for bytes that changed on their way.
        """
        offset, storing, receipt = upload.offset, self._pools.storing, None
        # Another server may have added to it, or this one may have cut it.
        if session.digest is None or self._coordinator.ledger.shared or not offset:
            session.digest = await storing.run(self._uploads.bytes.hash_so_far, upload.id)
        before = session.digest and session.digest.copy()
        part = None if checksum is None else hashlib.new(checksum.algorithm)
        digests = [digest for digest in (session.digest, part) if digest is not None]
        receiving = session.receiving = Receiving(request, digests, self._idle_seconds, storing)
        if session.overtaken():  # while there was nothing yet to interrupt
            receiving.interrupt()
        counted = False
        try:
            path = self._coordinator.folder.upload(upload.id)
            try:
                await receiving.into(
                    path, lambda: self._uploads.bytes.append(upload.id, offset), upload.length - offset
                )
            except Exception as error:
                if not isinstance(error, RequestError | UploadInterruptedError):
                    session.digest = None  # it may have taken bytes that the disk did not
                if part is not None and upload.sha256 is None:
                    await self._take_back(upload.id, session, before, offset)
                raise
            if part is not None and checksum is not None and part.digest() != checksum.digest:
                await self._take_back(upload.id, session, before, offset)
                raise RequestError(
                    tus.CHECKSUM_MISMATCH,
                    f"Upload-Checksum: the {receiving.nbytes} bytes received have another {checksum.algorithm}; "
                    f"they changed on their way, send them again from offset {offset}",
                )
            if offset + receiving.nbytes == upload.length:
                receipt = await self.settle(upload, session, receiving.uncounted)
                counted = True
        except UpdateError:
            counted = True  # by the coordinator, that wrote down why
            raise
        finally:
            session.receiving = None
            if not counted and (receiving.uncounted or not receiving.nbytes):
                await self._pools.writing.run(self._uploads.count_received, upload.id, receiving.uncounted)
            wire_of(request.scope).booked = receiving.nbytes
        return receipt

    async def settle(self, upload: UploadRecord, session: UploadSession, nbytes: int = 0) -> Receipt:
        """Ingest a complete upload. nbytes: of the request that brought the last of them. Raises as `append` does."""
        if session.digest is not None:
            sha256 = session.digest.hexdigest()
        else:
            sha256 = await self._pools.storing.run(self._uploads.bytes.sha256, upload.id)
        if upload.sha256 not in (None, sha256):
            await self._take_back(upload.id, session, session.digest and hashlib.sha256(), 0)
            raise RequestError(
                tus.CHECKSUM_MISMATCH,
                f"SHA-256 {str(upload.sha256)[:12]}… was announced, the {upload.length} bytes received have "
                f"{sha256[:12]}…; they changed on their way, send them again from offset 0",
            )
        return await self._pools.settling.run(self._coordinator.ingest, upload.id, sha256, nbytes)

    async def _take_back(self, identifier: str, session: UploadSession, digest: Any, offset: int) -> None:
        await self._pools.storing.run(self._uploads.bytes.cut, identifier, offset)
        session.digest = digest
