"""Updates in by tus 1.0, over as many requests as it takes."""

import asyncio
import contextlib
import hashlib
import itertools
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from phonograd.device_runtime.base.documents import Count, Record
from phonograd.device_runtime.base.errors import PhonogradError, StorageError, UpdateError
from phonograd.device_runtime.client.protocol import TUS_VERSION
from phonograd.server_agg.http import tus
from phonograd.server_agg.http.operations import (
    Answer,
    Header,
    Natural,
    operation,
)
from phonograd.server_agg.http.receiving import Receiving
from phonograd.server_agg.http.requests import RecordResponse, checked_name, phone_of
from phonograd.server_agg.http.thread_pools import ThreadPools
from phonograd.server_agg.http.wire import wire_of
from phonograd.server_agg.refusals import RequestError
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.rounds.responses import Receipt
from phonograd.server_agg.rounds.uploads import UploadRecord
from phonograd.server_agg.settings.server import ServerSettings

log = logging.getLogger(__name__)

# Uploads whose hash so far is kept in memory; those of others are read again from disk.
MAX_REMEMBERED = 1000


class Upload(Record, frozen=True):
    """What has become of an upload."""

    id: str
    state: str
    length: Count
    offset: Count
    status: int | None
    reason: str | None
    receipt: Receipt | None


@dataclass
class _UploadSession:
    """An upload that requests of this server's life have touched: what its bytes hash to, and who is adding some."""

    digest: Any = None  # of the bytes so far; None: not known, until they are read again
    receiving: Receiving | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    requests: int = 0  # so far
    current_request: int = 0  # which of them has the lock
    active_requests: int = 0  # requests that are at it now

    def overtaken(self) -> bool:
        """Whether a newer request waits for the one that has the lock."""
        return self.current_request != self.requests


class UploadRoutes:
    """The handlers that take updates in, over an open coordinator."""

    def __init__(self, coordinator: Coordinator, settings: ServerSettings, pools: ThreadPools):
        self._coordinator = coordinator
        self._settings = settings
        self._pools = pools
        self._sessions: dict[str, _UploadSession] = {}

    @operation("OPTIONS /v1/uploads", "phone", {204: tus.CAPABILITIES})
    async def tus_capabilities(self, request: Request) -> Response:
        """tus 1.0: what this server knows."""
        del request
        return Response(status_code=204, headers=tus.capabilities(self._limit()))

    @operation("OPTIONS /v1/uploads/{id}", "phone", {204: tus.CAPABILITIES}, takes=(tus.ID,))
    async def tus_capabilities_of_upload(self, request: Request) -> Response:
        """The tus version and extensions that this server has."""
        return await self.tus_capabilities(request)

    @operation(
        "POST /v1/uploads",
        "phone",
        {201: Answer("It has a URL.", headers=(*tus.STANDING, Header("Location")))},
        refuses=(400, 404, 408, 409, 410, 412, 413, 422, 460, 503),
        takes=tus.ANNOUNCED,
        body=tus.MAYBE_PART,
    )
    async def announce_upload(self, request: Request) -> Response:
        """tus creation; with a body, which is the upload's beginning."""
        tus.check_version(request.headers)
        announced = tus.announcement(request.headers, phone_of(request), self._limit())
        _note(request, checked_name(announced.phone), self._coordinator.current.round)
        upload = await self._pools.writing.run(self._coordinator.create_upload, announced)
        location = {"Location": f"/v1/uploads/{upload.id}"}
        # Of an upload that has begun already, the body is what is here: it is left unread.
        if upload.offset == 0 and tus.has_body_type(request.headers):
            try:
                upload = await self._append(request, upload, 0)
            except RequestError as error:
                error.headers |= location
                raise
        return Response(status_code=201, headers=location | tus.upload_headers(upload))

    @operation(  # before GET, whose route answers HEAD as well
        "HEAD /v1/uploads/{id}",
        "phone",
        {200: Answer("It goes on from Upload-Offset.", headers=(*tus.STANDING, Header("Upload-Length", Natural)))},
        refuses=(404, 410, 412),
        takes=(tus.ID, tus.VERSION),
    )
    async def upload_offset(self, request: Request) -> Response:
        """How many bytes of an upload are here.

        It answers once no request adds to them any more.
        """
        tus.check_version(request.headers)
        upload = await self._upload(request)
        async with self._exclusively(upload.id):
            upload = await run_in_threadpool(self._found, request, upload.id)
        _require_not_ended(upload)
        return Response(headers=tus.upload_headers(upload) | {"Upload-Length": str(upload.length)})

    @operation("GET /v1/uploads/{id}", "phone", {200: Answer("Its state.", Upload)}, refuses=(404,), takes=(tus.ID,))
    async def upload_outcome(self, request: Request) -> Response:
        """What has become of an upload."""
        upload = await self._upload(request)
        receipt: Receipt | None = None
        if upload.state in ("accepted", "repeated"):
            receipt = await run_in_threadpool(self._coordinator.receipt, upload.id)
        document = Upload(
            *(upload.id, upload.state, upload.length, upload.offset, upload.status), upload.reason or None, receipt
        )
        return RecordResponse(document, headers={"Cache-Control": "no-store"})

    @operation(
        "PATCH /v1/uploads/{id}",
        "phone",
        {204: Answer("They are here.", headers=tus.STANDING)},
        refuses=tus.REFUSED_BYTES,
        takes=tus.APPENDED,
        body=tus.PART,
    )
    async def append_to_upload(self, request: Request) -> Response:
        """More bytes of an upload; the last of them settle it."""
        tus.check_version(request.headers)
        upload = await self._upload(request)
        tus.check_body_type(request.headers)
        upload = await self._append(request, upload, tus.count_in(request.headers, "Upload-Offset"))
        return Response(status_code=204, headers=tus.upload_headers(upload))

    @operation(
        "DELETE /v1/uploads/{id}",
        "phone",
        {204: Answer("It is gone.", headers=tus.VERSIONED)},
        refuses=(403, 404, 412),
        takes=(tus.ID, tus.VERSION),
    )
    async def give_upload_up(self, request: Request) -> Response:
        """Give an upload up: its bytes are deleted (tus termination)."""
        tus.check_version(request.headers)
        upload = await self._upload(request)
        async with self._exclusively(upload.id):
            upload = await self._upload(request)
            _require_not_ended(upload)
            if upload.state != "receiving":
                raise RequestError(403, f"the upload is {upload.state}; only an unfinished one can be given up")
            await self._pools.writing.run(
                self._coordinator.uploads.abort, upload.id, "terminated", "the phone gave it up", 410
            )
        return Response(status_code=204, headers={"Tus-Resumable": TUS_VERSION})

    @operation(
        "POST /v1/uploads/{id}",
        "phone",
        {
            200: Answer("As HEAD answers.", headers=tus.STANDING),
            204: Answer("As PATCH or DELETE answers.", headers=tus.VERSIONED),
        },
        refuses=(*tus.REFUSED_BYTES, 403, 405),
        takes=tus.OVERRIDING,
        body=tus.MAYBE_PART,
    )
    async def upload_overridden(self, request: Request) -> Response:
        """PATCH, DELETE or HEAD for networks that do not let them through."""
        methods = {"PATCH": self.append_to_upload, "DELETE": self.give_upload_up, "HEAD": self.upload_offset}
        method = request.headers.get("X-HTTP-Method-Override", "")
        if method not in methods:
            raise RequestError(405, f"X-HTTP-Method-Override: {', '.join(methods)} expected, found {method[:20]!r}")
        return await methods[method](request)

    @contextlib.asynccontextmanager
    async def _exclusively(self, identifier: str) -> AsyncIterator[_UploadSession]:
        """An upload for this request alone; raises RequestError (409) if a newer one came while it waited.

        The phone has a new connection: whatever still waits on an older one waits in vain.
        """
        session = self._sessions[identifier] = self._sessions.pop(
            identifier, _UploadSession()
        )  # last in order: used last
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

    async def _append(self, request: Request, upload: UploadRecord, offset: int) -> UploadRecord:
        checksum = tus.checksum_in(request.headers)
        _require_not_ended(upload)
        try:
            async with self._exclusively(upload.id) as session:
                upload = await run_in_threadpool(self._found, request, upload.id)
                _require_not_ended(upload)
                await self._receive(request, upload, session, offset, checksum)
        except RequestError as error:
            upload = await run_in_threadpool(self._found, request, upload.id)
            _require_not_ended(upload)
            error.headers["Upload-Offset"] = str(upload.offset)
            raise
        upload = await run_in_threadpool(self._found, request, upload.id)
        _require_not_ended(upload)
        wire_of(request.scope).round = upload.round
        return upload

    async def _receive(
        self,
        request: Request,
        upload: UploadRecord,
        session: _UploadSession,
        offset: int,
        checksum: tus.Checksum | None,
    ) -> None:
        if upload.offset != offset:
            raise RequestError(409, f"Upload-Offset: {upload.offset} expected, found {offset}; go on from there")
        if upload.state != "receiving":
            return  # settled by the request before this one
        path, uploads = self._coordinator.folder.upload(upload.id), self._coordinator.uploads.bytes
        if session.digest is None:
            session.digest = await self._pools.storing.run(uploads.hashed, upload.id)
        before = None if session.digest is None else session.digest.copy()
        part = None if checksum is None else hashlib.new(checksum.algorithm)
        digests = [digest for digest in (session.digest, part) if digest is not None]
        session.receiving = Receiving(request, digests, self._settings.idle_seconds, self._pools.storing)
        if session.overtaken():  # while there was nothing yet to interrupt
            session.receiving.interrupt()
        # Without the whole's hash nothing else would find out whether these bytes are right.
        unchecked = part is not None and upload.sha256 is None
        counted = False
        try:
            await session.receiving.into(path, lambda: uploads.append(upload.id, offset), upload.length - offset)
            if part is not None and checksum is not None and part.digest() != checksum.digest:
                unchecked = True
                raise RequestError(
                    tus.CHECKSUM_MISMATCH,
                    f"Upload-Checksum: the {session.receiving.nbytes} bytes received have another "
                    f"{checksum.algorithm}; they changed on their way, send them again from offset {offset}",
                )
            unchecked = False
            if offset + session.receiving.nbytes == upload.length:
                await self._settle(upload, session, session.receiving.uncounted)
                counted = True
        except PhonogradError as error:
            counted = isinstance(error, UpdateError)  # by the coordinator, that wrote down why
            if isinstance(error, StorageError):
                session.digest = None  # it may have taken bytes that the disk did not
            if unchecked:
                await self._take_back(upload.id, session, before, offset)
            raise
        finally:
            receiving, session.receiving = session.receiving, None
            if not counted and (receiving.uncounted or not receiving.nbytes):
                await self._pools.writing.run(self._coordinator.uploads.received, upload.id, receiving.uncounted)
            wire_of(request.scope).booked = receiving.nbytes

    async def _settle(self, upload: UploadRecord, session: _UploadSession, nbytes: int) -> None:
        if session.digest is not None:
            found = session.digest.hexdigest()
        else:
            found = await self._pools.storing.run(self._coordinator.uploads.bytes.sha256, upload.id)
        if upload.sha256 not in (None, found):
            await self._take_back(upload.id, session, session.digest and hashlib.sha256(), 0)
            raise RequestError(
                tus.CHECKSUM_MISMATCH,
                f"SHA-256 {str(upload.sha256)[:12]}… was announced, the {upload.length} bytes received have "
                f"{found[:12]}…; they changed on their way, send them again from offset 0",
            )
        await self._pools.settling.run(self._coordinator.ingest, upload.id, found, nbytes)

    async def _take_back(self, identifier: str, session: _UploadSession, digest: Any, offset: int) -> None:
        await self._pools.storing.run(self._coordinator.uploads.bytes.cut, identifier, offset)
        session.digest = digest

    async def _upload(self, request: Request) -> UploadRecord:
        upload = await run_in_threadpool(self._found, request, request.path_params["id"])
        _note(request, upload.phone, upload.round)
        return upload

    def _found(self, request: Request, identifier: str) -> UploadRecord:
        upload = self._coordinator.uploads.find(identifier)
        phone = phone_of(request)
        if upload is None or (phone is not None and phone != upload.phone):
            raise RequestError(404, f"upload {identifier[:40]} is not here; start a new upload: POST /v1/uploads")
        return upload

    def _limit(self) -> int:
        return self._settings.upload_limit(self._coordinator.current.model_bytes)


def _note(request: Request, phone: str, number: int) -> None:
    """Tell the wire counter whose request this is."""
    wire = wire_of(request.scope)
    wire.kind, wire.phone, wire.round = "upload", phone, number


def _require_not_ended(upload: UploadRecord) -> None:
    if upload.state not in ("receiving", "accepted", "repeated"):
        raise RequestError(410, f"the upload is {upload.state}: {upload.reason}; start a new upload: POST /v1/uploads")
