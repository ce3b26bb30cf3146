"""The HTTP application: rounds out, updates in, and the report of what both cost."""

import dataclasses
import math

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Scope

from phonograd.device_runtime.client.protocol import PHONE_NAME
from phonograd.server_agg.dashboard.pages import Dashboard
from phonograd.server_agg.http.downloads import ModelFile, check_range, matches
from phonograd.server_agg.http.health import Health
from phonograd.server_agg.http.lanes import Lanes
from phonograd.server_agg.http.metrics import Metrics
from phonograd.server_agg.http.observing import RequestObserver
from phonograd.server_agg.http.problems import HANDLERS
from phonograd.server_agg.http.quality import QualityRoute
from phonograd.server_agg.http.requests import phone_of, whole_number
from phonograd.server_agg.http.tus import SHA256
from phonograd.server_agg.http.uploads import UploadRoutes
from phonograd.server_agg.http.wire import RequestWire, WireCounter, wire_of
from phonograd.server_agg.openapi.document import OpenApi
from phonograd.server_agg.refusals import RequestError
from phonograd.server_agg.report.document import lineage_of, phones_of, report_csv, report_of
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.security.guard import Guard
from phonograd.server_agg.security.owner import Owner
from phonograd.server_agg.security.registry import PhoneRegistry
from phonograd.server_agg.security.routes import admin_routes
from phonograd.server_agg.settings.server import ServerSettings
from phonograd.server_agg.storage.audit import AuditLog
from phonograd.server_agg.storage.ledger import WireBytes
from phonograd.server_agg.storage.tables import TrafficKind


def create_app(coordinator: Coordinator, settings: ServerSettings, owner: Owner) -> Starlette:
    """The application over an open coordinator, which stays the caller's to close. `owner`: an administrator too."""
    registry, audit, lanes = PhoneRegistry(coordinator.ledger), AuditLog(coordinator.ledger), Lanes()
    api = _Api(coordinator, settings, audit, lanes)
    observer = RequestObserver()
    routes = [
        Route("/healthz", Health(coordinator).answer),
        Route("/metrics", Metrics(coordinator, observer).answer),
        Route("/openapi.json", OpenApi(coordinator.security, settings.host).answer),
        Route("/v1/round", api.round),
        Route("/v1/model", api.current_model),
        Route("/v1/models", api.models),
        Route("/v1/models/{sha256}", api.model),
        Route("/v1/models/{sha256}/quality", QualityRoute(coordinator.ledger, lanes).report, methods=["POST"]),
        Route("/v1/report", api.report),
        Route("/v1/report.csv", api.report_as_csv),
        Route("/v1/report/rounds/{number:int}", api.phones),
        Route("/v1/rollback", api.rollback, methods=["POST"]),
        Route("/v1/discard", api.discard, methods=["POST"]),
        *UploadRoutes(coordinator, settings, lanes).routes(),
        *admin_routes(registry, audit, owner, lanes),
        *Dashboard(coordinator).routes(),
    ]

    def over(scope: Scope, wire: RequestWire, cost: WireBytes) -> None:
        api.count(wire, cost)
        if cost.requests:  # not what came of a body after its answer
            observer.observe(scope, wire, cost)

    counted = Middleware(WireCounter, on_request=over)
    guard = Middleware(
        Guard,
        settings=coordinator.security,
        host=settings.host,
        owner=owner,
        registry=registry,
        audit=audit,
        lanes=lanes,
    )
    return Starlette(routes=routes, middleware=[counted, guard], exception_handlers=dict(HANDLERS))


class _Api:
    def __init__(self, coordinator: Coordinator, settings: ServerSettings, audit: AuditLog, lanes: Lanes):
        self._coordinator = coordinator
        self._settings = settings
        self._audit = audit
        self._lanes = lanes

    def count(self, wire: RequestWire, cost: WireBytes) -> None:
        # Refused before anybody knew what it was for: no token, too often, a malformed header.
        kind: TrafficKind | None = wire.kind or ("refused" if 400 <= (wire.status or 0) < 500 else None)
        if kind is not None:
            number = self._coordinator.current.round if wire.round is None else wire.round
            # Of a body that goes on after its answer, which is no request of its own, nothing was read, nor booked.
            self._coordinator.ledger.count(
                number, wire.phone, kind, cost.without(wire.booked) if cost.requests else cost
            )

    async def round(self, request: Request) -> Response:
        """The open round; for a phone that names itself, whether it has a place in it.

        How many took part in a private one is for administrators alone.
        """
        phone = self._note(request, "round")
        current = self._coordinator.current
        document = {**dataclasses.asdict(current), "model_url": f"/v1/models/{current.base_sha256}"}
        principal = request.scope["state"].get("principal")
        if current.private and (principal is None or principal.role != "admin"):
            document["accepted"] = None
        if not phone:
            return JSONResponse(document)
        refused = await run_in_threadpool(self._coordinator.participation, phone)
        wait = {} if refused is None else {"Retry-After": str(math.ceil(self._settings.retry_seconds))}
        return JSONResponse({**document, "participate": refused is None, "reason": refused}, headers=wait)

    async def current_model(self, request: Request) -> Response:
        return self._send_model(request, self._coordinator.current.base_sha256)

    async def model(self, request: Request) -> Response:
        sha256 = request.path_params["sha256"]
        if not SHA256.match(sha256) or not self._coordinator.folder.model(sha256).is_file():
            raise RequestError(404, f"model {sha256[:80]} is not here, or no longer; the current one is at /v1/model")
        return self._send_model(request, sha256)

    async def models(self, request: Request) -> Response:
        """All models with their parents: the lineage."""
        del request
        models = await run_in_threadpool(lineage_of, self._coordinator.ledger, self._coordinator.folder.root)
        return JSONResponse({"models": models})

    async def report(self, request: Request) -> Response:
        del request
        return JSONResponse(await self._report())

    async def report_as_csv(self, request: Request) -> Response:
        del request
        document = await self._report()
        return PlainTextResponse(report_csv(document), media_type="text/csv")

    async def phones(self, request: Request) -> Response:
        """What each phone cost in one round."""
        number = int(request.path_params["number"])
        if number > self._coordinator.current.round:
            raise RequestError(
                404, f"round {number} is not here; round {self._coordinator.current.round} is the open one"
            )
        await self._lanes.writing.run(self._coordinator.ledger.flush)
        phones = await run_in_threadpool(phones_of, self._coordinator.ledger, number)
        return JSONResponse({"round": number, "phones": phones})

    async def rollback(self, request: Request) -> Response:
        """Go back to the model of ?round=N."""
        number = whole_number(request, "round")
        opened = await self._lanes.settling.run(self._coordinator.rollback, number)
        await self._lanes.writing.run(self._audit.record_done, request.state.actor, "rollback", f"to round {number}")
        return JSONResponse(dataclasses.asdict(opened))

    async def discard(self, request: Request) -> Response:
        """Delete the updates that are kept of ?round=N, which failed."""
        number = whole_number(request, "round")
        discarded = await self._lanes.settling.run(self._coordinator.discard, number)
        await self._lanes.writing.run(
            self._audit.record_done, request.state.actor, "discard", f"round {number}", f"{discarded} updates"
        )
        return JSONResponse({"round": number, "discarded": discarded})

    async def _report(self) -> dict[str, object]:
        await self._lanes.writing.run(self._coordinator.ledger.flush)
        return await run_in_threadpool(report_of, self._coordinator.ledger)

    def _note(self, request: Request, kind: TrafficKind) -> str:
        """Tell the wire counter what this is; the phone's name, '' if it has none."""
        wire = wire_of(request.scope)
        wire.kind, name = kind, phone_of(request)
        wire.phone = name if name is not None and PHONE_NAME.match(name) else ""
        return wire.phone

    def _send_model(self, request: Request, sha256: str) -> Response:
        self._note(request, "model")
        etag = f'"{sha256}"'
        if matches(request.headers.get("If-None-Match"), etag):
            return Response(status_code=304, headers={"ETag": etag})
        path = self._coordinator.folder.model(sha256)
        check_range(request, path, etag)
        return ModelFile(path, etag)
