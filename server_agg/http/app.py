"""The HTTP application: rounds out, updates in, and the report of what both cost."""

import dataclasses
import logging
import re

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from device_runtime.errors import PhonogradError
from device_runtime.server_protocol import PHONE_HEADER, PHONE_NAME
from server_agg.http.downloads import CountedFile, matches
from server_agg.http.problems import HANDLERS, one_line, problem_of
from server_agg.http.receiving import Receiving, UploadHeaders
from server_agg.refusals import RequestError
from server_agg.report import report_csv, report_of
from server_agg.rounds.keeper import Receipt, RoundKeeper
from server_agg.security.audit import AuditLog
from server_agg.security.guard import Guard
from server_agg.security.registry import PhoneRegistry
from server_agg.security.routes import admin_routes
from server_agg.settings import ServerSettings

log = logging.getLogger(__name__)

SHA256 = re.compile(r"[0-9a-f]{64}\Z")


def create_app(keeper: RoundKeeper, settings: ServerSettings) -> Starlette:
    """The application over an open keeper, which stays the caller's to close."""
    api = _Api(keeper, settings)
    registry, audit = PhoneRegistry(keeper.ledger), AuditLog(keeper.ledger)
    routes = [
        Route("/healthz", api.health),
        Route("/v1/round", api.round),
        Route("/v1/model", api.current_model),
        Route("/v1/models/{sha256}", api.model),
        Route("/v1/updates", api.upload, methods=["POST"]),
        Route("/v1/report", api.report),
        Route("/v1/report.csv", api.report_as_csv),
        *admin_routes(registry, audit),
    ]
    guard = Middleware(Guard, settings=settings.security, host=settings.host, registry=registry, audit=audit)
    return Starlette(routes=routes, middleware=[guard], exception_handlers=dict(HANDLERS))


class _Api:
    def __init__(self, keeper: RoundKeeper, settings: ServerSettings):
        self._keeper = keeper
        self._settings = settings

    async def health(self, request: Request) -> Response:
        del request
        return JSONResponse({"status": "ok"})

    async def round(self, request: Request) -> Response:
        del request
        current = self._keeper.current
        return JSONResponse({**dataclasses.asdict(current), "model_url": f"/v1/models/{current.base_sha256}"})

    async def current_model(self, request: Request) -> Response:
        return self._send_model(request, self._keeper.current.base_sha256)

    async def model(self, request: Request) -> Response:
        sha256 = request.path_params["sha256"]
        if not SHA256.match(sha256) or not self._keeper.folder.model(sha256).is_file():
            raise RequestError(404, f"model {sha256[:80]} is not here, or no longer; the current one is at /v1/model")
        return self._send_model(request, sha256)

    async def report(self, request: Request) -> Response:
        del request
        return JSONResponse(await run_in_threadpool(report_of, self._keeper.ledger))

    async def report_as_csv(self, request: Request) -> Response:
        del request
        document = await run_in_threadpool(report_of, self._keeper.ledger)
        return PlainTextResponse(report_csv(document), media_type="text/csv")

    async def upload(self, request: Request) -> Response:
        receiving = Receiving(request)
        try:
            receipt = await self._take_in(request, receiving)
        except PhonogradError as error:
            return await self._refuse(request, receiving, error)
        return JSONResponse(dataclasses.asdict(receipt), 201)

    async def _take_in(self, request: Request, receiving: Receiving) -> Receipt:
        keeper = self._keeper
        model_bytes = keeper.current.model_bytes
        announced = UploadHeaders.parse(request.headers, self._settings.upload_limit(model_bytes))
        # The update, and then the model that this update may complete.
        await run_in_threadpool(keeper.folder.check_space, announced.nbytes + model_bytes)
        path = keeper.folder.new_incoming()
        try:
            await receiving.into(path, announced, self._settings.idle_seconds)
            return await run_in_threadpool(keeper.accept, path, announced.phone, announced.sha256, receiving.transfer)
        finally:
            path.unlink(missing_ok=True)

    async def _refuse(self, request: Request, receiving: Receiving, error: PhonogradError) -> Response:
        """Log the refusal, write it down with the bytes that came, and answer."""
        phone = _phone(request)
        transfer = receiving.transfer
        problem = problem_of(error)
        log.warning("update of %s refused after %d bytes: %s", phone or "a phone", transfer.body_bytes, one_line(error))
        try:
            await run_in_threadpool(self._keeper.refuse, transfer, phone, one_line(error))
        except PhonogradError as ledger_error:
            log.error("the refusal could not be written down: %s", ledger_error)
        return problem

    def _send_model(self, request: Request, sha256: str) -> Response:
        etag = f'"{sha256}"'
        if matches(request.headers.get("If-None-Match"), etag):
            return Response(status_code=304, headers={"ETag": etag})
        phone = _phone(request)
        path = self._keeper.folder.model(sha256)
        return CountedFile(path, etag, lambda nbytes: self._keeper.sent(sha256, phone, nbytes))


def _phone(request: Request) -> str | None:
    """The name the phone gives itself, if it is one."""
    name = request.headers.get(PHONE_HEADER, "")
    return name if PHONE_NAME.match(name) else None
