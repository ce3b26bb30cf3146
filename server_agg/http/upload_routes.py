"""Updates in by tus 1.0, over as many requests as it takes."""

from dataclasses import replace

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from phonograd.device_runtime.base.documents import Count, Record
from phonograd.device_runtime.client.protocol import TUS_VERSION
from phonograd.server_agg.http import tus
from phonograd.server_agg.http.operations import Answer, Header, Natural, operation
from phonograd.server_agg.http.requests import RecordResponse, checked_name, phone_of
from phonograd.server_agg.http.thread_pools import ThreadPools
from phonograd.server_agg.http.upload_sessions import UploadSession, UploadSessions
from phonograd.server_agg.http.wire import wire_of
from phonograd.server_agg.refusals import RequestError, RoundClosingError
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.rounds.responses import Receipt
from phonograd.server_agg.rounds.uploads import UploadRecord
from phonograd.server_agg.settings.server import ServerSettings


class Upload(Record, frozen=True):
    """What has become of an upload."""

    id: str
    state: str
    length: Count
    offset: Count
    status: int | None
    reason: str | None
    receipt: Receipt | None


class Announced(Record, frozen=True):
    """The receipt of an update that came whole with its announcement; else None: its URL tells what becomes of it."""

    receipt: Receipt | None


class UploadRoutes:
    """The handlers that take updates in, over an open coordinator."""

    def __init__(self, coordinator: Coordinator, settings: ServerSettings, pools: ThreadPools):
        self._coordinator = coordinator
        self._settings = settings
        self._pools = pools
        self._sessions = UploadSessions(coordinator, settings.idle_seconds, pools)

    @operation("OPTIONS /v1/uploads", "phone", {204: tus.CAPABILITIES})
    async def tus_capabilities(self, _: Request) -> Response:
        """tus 1.0: what this server knows."""
        return Response(status_code=204, headers=tus.capabilities(self._limit()))

    @operation("OPTIONS /v1/uploads/{id}", "phone", {204: tus.CAPABILITIES}, takes=(tus.ID,))
    async def tus_capabilities_of_upload(self, request: Request) -> Response:
        """The tus version and extensions that this server has."""
        return await self.tus_capabilities(request)

    @operation(
        "POST /v1/uploads",
        "phone",
        {201: Answer("It has a URL.", Announced, headers=(*tus.STANDING, Header("Location")))},
        refuses=(400, 404, 408, 409, 410, 412, 413, 422, 460, 503),
        takes=tus.ANNOUNCED,
        body=tus.MAYBE_PART,
    )
    async def announce_upload(self, request: Request) -> Response:
        """tus creation; with a body, which is the upload's beginning, or all of it."""
        tus.check_version(request.headers)
        announced = tus.announcement(request.headers, phone_of(request), self._limit())
        _note(request, checked_name(announced.phone), self._coordinator.current.round)
        upload = await self._pools.writing.run(self._coordinator.create_upload, announced)
        location, receipt = {"Location": f"/v1/uploads/{upload.id}"}, None
        # The body of an upload that has begun already is here: it is left unread.
        if upload.offset == 0 and tus.has_body_type(request.headers):
            try:
                upload, receipt = await self._append(request, upload, 0)
            except RequestError as error:
                error.headers |= location
                raise
        return RecordResponse(Announced(receipt), 201, location | tus.upload_headers(upload))

    @operation(  # before GET, whose route answers HEAD as well
        "HEAD /v1/uploads/{id}",
        "phone",
        {200: Answer("It goes on from Upload-Offset.", headers=(*tus.STANDING, Header("Upload-Length", Natural)))},
        refuses=(400, 404, 409, 410, 412, 422, 503),
        takes=(tus.ID, tus.VERSION),
    )
    async def upload_offset(self, request: Request) -> Response:
        """Return how many bytes of an upload are here.

        It answers once no request adds to them any more. All of them are ingested, if none has: a phone whose last
        request broke off at its very end sends nothing more.
        """
        tus.check_version(request.headers)
        upload = await self._find_named(request)
        async with self._sessions.exclusively(upload.id) as session:
            upload = await self._find_upload(request, upload.id)
            if upload.complete and upload.state == "receiving":
                upload = await self._settle(request, upload, session)
        return Response(headers=tus.upload_headers(upload) | {"Upload-Length": str(upload.length)})

    @operation("GET /v1/uploads/{id}", "phone", {200: Answer("Its state.", Upload)}, refuses=(404,), takes=(tus.ID,))
    async def upload_outcome(self, request: Request) -> Response:
        """What has become of an upload."""
        upload = await self._find_named(request)
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
        upload = await self._find_named(request)
        tus.check_body_type(request.headers)
        upload, _ = await self._append(request, upload, tus.count_in(request.headers, "Upload-Offset"))
        return Response(status_code=204, headers=tus.upload_headers(upload))

    @operation(
        "DELETE /v1/uploads/{id}",
        "phone",
        {204: Answer("It is gone.", headers=tus.VERSIONED)},
        refuses=(403, 404, 410, 412),
        takes=(tus.ID, tus.VERSION),
    )
    async def give_upload_up(self, request: Request) -> Response:
        """Give an upload up: its bytes are deleted (tus termination)."""
        tus.check_version(request.headers)
        upload = await self._find_named(request)
        async with self._sessions.exclusively(upload.id):
            upload = await self._find_upload(request, upload.id)
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

    async def _append(self, request: Request, upload: UploadRecord, offset: int) -> tuple[UploadRecord, Receipt | None]:
        """Append the body to an upload that was read just now. The upload afterwards; its receipt, if that was all."""
        checksum, receipt = tus.checksum_in(request.headers), None
        try:
            async with self._sessions.exclusively(upload.id) as session:
                if session.requests > 1 or self._coordinator.ledger.shared:  # others may have added to it
                    upload = await self._find_upload(request, upload.id)
                if upload.offset != offset:
                    raise RequestError(
                        409, f"Upload-Offset: {upload.offset} expected, found {offset}; go on from there"
                    )
                if upload.state == "receiving":  # else settled by the request before this one
                    receipt = await self._sessions.append(session, upload, request, checksum)
        except RequestError as error:
            error.headers["Upload-Offset"] = str((await self._find_upload(request, upload.id)).offset)
            raise
        if receipt is None or receipt.round_closed:  # or the round failed
            upload = await self._find_upload(request, upload.id)
        else:
            upload = replace(upload, state="accepted", offset=upload.length, round=receipt.round)
        wire_of(request.scope).round = upload.round
        return upload, receipt

    async def _settle(self, request: Request, upload: UploadRecord, session: UploadSession) -> UploadRecord:
        """Ingest a complete upload; start it again if its bytes changed on their way."""
        if self._coordinator.ledger.shared:  # another server may have brought the last of them
            session.digest = None
        try:
            await self._sessions.settle(upload, session)
        except RoundClosingError:
            return upload  # the server itself ingests it later
        except RequestError as error:
            if error.status != tus.CHECKSUM_MISMATCH:
                raise
        return await self._find_upload(request, upload.id)

    async def _find_named(self, request: Request) -> UploadRecord:
        """Find the upload of the request's path, and book the request's bytes to it."""
        upload = await self._find_upload(request, request.path_params["id"], ended=True)
        _note(request, upload.phone, upload.round)
        return upload

    async def _find_upload(self, request: Request, identifier: str, ended: bool = False) -> UploadRecord:
        """Find an upload of the phone that asks. Raises RequestError (404, or 410 if it ended without an update)."""
        upload = await run_in_threadpool(self._coordinator.uploads.find, identifier)
        if upload is None or phone_of(request) not in (None, upload.phone):
            raise RequestError(404, f"upload {identifier[:40]} is not here; start a new upload: POST /v1/uploads")
        if not ended and upload.state not in ("receiving", "accepted", "repeated"):
            raise RequestError(
                410, f"the upload is {upload.state}: {upload.reason}; start a new upload: POST /v1/uploads"
            )
        return upload

    def _limit(self) -> int:
        return self._settings.upload_limit(self._coordinator.current.model_bytes)


def _note(request: Request, phone: str, number: int) -> None:
    wire = wire_of(request.scope)
    wire.kind, wire.phone, wire.round = "upload", phone, number
