"""The HTTP application: all operations of the server, behind the guard and with their bytes counted."""

import dataclasses

from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.types import Scope

from phonograd.server_agg.dashboard.pages import Dashboard
from phonograd.server_agg.http.masked_routes import MaskedRoutes
from phonograd.server_agg.http.model_routes import ModelRoutes
from phonograd.server_agg.http.monitoring import HealthRoute, MetricsRoute, RequestObserver
from phonograd.server_agg.http.operations import operations_of, routes_of
from phonograd.server_agg.http.problems import HANDLERS
from phonograd.server_agg.http.report_routes import ReportRoutes
from phonograd.server_agg.http.round_routes import RoundRoutes
from phonograd.server_agg.http.thread_pools import ThreadPools
from phonograd.server_agg.http.upload_routes import UploadRoutes
from phonograd.server_agg.http.wire import RequestWire, WireCounter
from phonograd.server_agg.openapi.document import OpenApiRoute
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.security.guard import Guard, Roles
from phonograd.server_agg.security.owner import Owner
from phonograd.server_agg.security.registry import PhoneRegistry
from phonograd.server_agg.security.routes import AdminRoutes
from phonograd.server_agg.settings.server import ServerSettings
from phonograd.server_agg.storage.audit import AuditLog
from phonograd.server_agg.storage.ledger import Ledger, WireBytes
from phonograd.server_agg.storage.tables import TrafficKind

# All that the server answers, whatever its settings.
OPERATIONS = operations_of(
    RoundRoutes,
    ModelRoutes,
    UploadRoutes,
    MaskedRoutes,
    ReportRoutes,
    AdminRoutes,
    HealthRoute,
    MetricsRoute,
    OpenApiRoute,
    Dashboard,
)


def create_app(coordinator: Coordinator, settings: ServerSettings, owner: Owner) -> Starlette:
    """The application over an open coordinator, which stays the caller's to close. `owner`: an administrator too."""
    ledger, security, metrics = coordinator.ledger, coordinator.security, CollectorRegistry(auto_describe=False)
    registry, audit, pools, observer = PhoneRegistry(ledger), AuditLog(ledger), ThreadPools(), RequestObserver(metrics)
    apis = (
        RoundRoutes(coordinator, audit, pools),
        ModelRoutes(coordinator, settings.downloads, pools),
        UploadRoutes(coordinator, settings, pools),
        MaskedRoutes(coordinator, pools),
        ReportRoutes(coordinator, pools),
        AdminRoutes(registry, audit, owner, pools),
        HealthRoute(coordinator),
        MetricsRoute(coordinator, metrics),
        OpenApiRoute(OPERATIONS, security, settings.host),
        Dashboard(coordinator),
    )

    def over(scope: Scope, wire: RequestWire, cost: WireBytes) -> None:
        _count(ledger, coordinator.current.round, wire, cost)
        if cost.requests:  # not what came of a body after its answer
            observer.observe(scope, wire, cost)

    counted = Middleware(WireCounter, on_request=over)
    guard = Middleware(
        Guard,
        settings=security,
        host=settings.host,
        roles=Roles(OPERATIONS),
        owner=owner,
        registry=registry,
        audit=audit,
        pools=pools,
    )
    routes = [route for api in apis for route in routes_of(api)]
    return Starlette(routes=routes, middleware=[counted, guard], exception_handlers=dict(HANDLERS))


def _count(ledger: Ledger, open_round: int, wire: RequestWire, cost: WireBytes) -> None:
    # Refused before anybody knew what it was for: no token, too often, a malformed header.
    kind: TrafficKind | None = wire.kind or ("refused" if 400 <= (wire.status or 0) < 500 else None)
    if kind is not None:
        if wire.round is None:
            wire.round = open_round  # also of the request's bytes that are counted later
        if cost.requests:  # not what came after it
            own, all_down = cost.up_body - wire.booked, cost.down_body + wire.asked
            cost = dataclasses.replace(cost, up_body=own, down_body=all_down)
        ledger.count(wire.round, wire.phone, kind, cost)
