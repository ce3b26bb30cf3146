"""Monitoring of a server: probes, /metrics for Prometheus, and a log line and a place in a histogram for each request.

Metrics are read from the ledger at every scrape, so a restart loses nothing. Only the seconds of requests and the
process's figures start again with it; Prometheus adds those up.
"""

import logging
import math
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

from prometheus_client import CollectorRegistry, Gauge, Histogram, Info, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy.orm import Session
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from phonograd import __version__
from phonograd.device_runtime.base.documents import Record
from phonograd.device_runtime.base.errors import StorageError
from phonograd.server_agg.aggregation.privacy.accountant import NEIGHBOURS
from phonograd.server_agg.aggregation.settings import StrategySettings
from phonograd.server_agg.http.operations import Answer, operation
from phonograd.server_agg.http.problems import ProblemResponse
from phonograd.server_agg.http.requests import RecordResponse
from phonograd.server_agg.http.wire import RequestWire
from phonograd.server_agg.log_format import event
from phonograd.server_agg.report.document import outcome_bytes, sent_in_vain
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.storage import figures, queries, sums
from phonograd.server_agg.storage.ledger import WireBytes
from phonograd.server_agg.storage.quality import all_quality
from phonograd.server_agg.storage.tables import Ending

log = logging.getLogger(__name__)

# Seconds. The long ones are uploads over slow networks.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
METHODS = ("GET", "HEAD", "POST", "PATCH", "DELETE", "OPTIONS")
# Asked for every second or so by programs: these would be most of the log.
POLLED = ("/healthz", "/livez", "/metrics", "/dashboard/live")
UNMATCHED = "unmatched"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class RequestObserver:
    """Logs requests, and counts them in a histogram of `registry`; thread-safe."""

    def __init__(self, registry: CollectorRegistry):
        # Few values of each label, none of them a stranger's text. `status` "": no answer.
        self._seconds = Histogram(
            "phonograd_http_request_seconds",
            "Duration of requests in seconds.",
            ("method", "route", "status"),
            buckets=BUCKETS,
            registry=registry,
        )

    def observe(self, scope: Scope, wire: RequestWire, cost: WireBytes) -> None:
        """Record a finished request."""
        method = scope["method"] if scope["method"] in METHODS else "other"
        route, status = route_of(scope), str(wire.status or "")
        self._seconds.labels(method, route, status).observe(wire.seconds)
        up, down = cost.up_headers + cost.up_body, cost.down_headers + cost.down_body
        log.log(
            logging.DEBUG if route in POLLED else logging.INFO,
            "%s %s %s: %d bytes up, %d down, %.3f s%s",
            method, route, status or "broke off", up, down, wire.seconds,
            f", {wire.phone}" if wire.phone else "",
            extra=event(
                "request", method=method, route=route, status=wire.status, bytes_up=up, bytes_down=down,
                seconds=round(wire.seconds, 6), phone=wire.phone or None, round=wire.round,
            ),
        )  # fmt: skip


def route_of(scope: Scope) -> str:
    """The path as its route writes it: a request refused before it reached one has it too."""
    if (routed := scope.get("route")) is not None:
        return str(routed.path)
    for route in scope["app"].routes:
        if isinstance(route, Route) and route.matches(scope)[0] != Match.NONE:
            return route.path
    return UNMATCHED


class Health(Record, frozen=True):
    """The server can work."""

    status: Literal["ok"]


class HealthRoute:
    """The handler over an open coordinator."""

    def __init__(self, coordinator: Coordinator):
        self._coordinator = coordinator

    @operation("GET /healthz", "open", {200: Answer("It can.", Health)}, refuses=(503,))
    def health(self, _: Request) -> Response:
        """Say whether the server can work.

        The ledger is read, nothing is written.
        """
        wrong = self._wrong()
        headers = {"Cache-Control": "no-store"}
        if wrong is None:
            return RecordResponse(Health("ok"), headers=headers)
        return ProblemResponse(503, "Not healthy", wrong, headers)

    @operation("GET /livez", "open", {200: Answer("It does.", Health)})
    async def liveness(self, _: Request) -> Response:
        """Say whether the server answers at all.

        A restart helps against nothing that only /healthz finds: a full disk, a round that is overdue.
        """
        return RecordResponse(Health("ok"), headers={"Cache-Control": "no-store"})

    def _wrong(self) -> str | None:
        coordinator = self._coordinator
        try:
            with coordinator.ledger.reading() as session:
                if queries.open_round(session) is None:
                    return "no round is open; the server's log says why"
        except StorageError:
            return "the ledger does not answer; see the server's log"
        if coordinator.overdue:
            return "the round is due and cannot be closed; the server tries again, and its log says why"
        try:
            coordinator.folder.check_space(coordinator.current.model_bytes)
        except StorageError:
            return "the disk has no room for another model; free space"
        return None


class MetricsRoute:
    """The handler over an open coordinator. `registry`: the application's own; it may have other metrics already."""

    def __init__(self, coordinator: Coordinator, registry: CollectorRegistry):
        ProcessCollector(registry=registry)
        self._registry = registry
        registry.register(_FromLedger(coordinator))
        Info("phonograd_build", "Always 1; says which version runs.", registry=registry).info({"version": __version__})
        free = Gauge("phonograd_state_free_bytes", "Free bytes on the state folder's disk.", registry=registry)
        free.set_function(lambda: shutil.disk_usage(coordinator.folder.root).free)

    @operation("GET /metrics", "admin", {200: Answer("Text exposition 0.0.4.", str, (CONTENT_TYPE,))})
    def metrics(self, _: Request) -> Response:
        """Return all metrics, in Prometheus's text format."""
        return Response(generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE})


class _FromLedger(Collector):
    def __init__(self, coordinator: Coordinator):
        self._coordinator = coordinator

    def collect(self) -> Iterable[Metric]:
        ledger = self._coordinator.ledger
        figures.refresh(ledger)
        with ledger.reading() as session:
            traffic = sums.traffic_sums(session)
            found = [*_traffic(traffic), *_updates(session, traffic), *_rounds(session)]
            if (epsilon := sums.epsilon_spent(session)) is not None:
                found += _privacy(epsilon, figures.unbounded_phones(session))
            found.append(self._quality(session))
        yield from found
        yield from self._open_round()

    def _quality(self, session: Session) -> Metric:
        values = all_quality(session)[self._coordinator.current.base_sha256]
        return _gauges(
            "phonograd_quality", "Quality of the current model, as evaluators reported it.", "metric", values
        )

    def _open_round(self) -> Iterator[Metric]:
        current, uploads = self._coordinator.current, self._coordinator.uploads.unfinished_uploads()
        yield _gauge("phonograd_round", "Number of the open round.", current.round)
        yield _gauge("phonograd_round_accepted", "Updates that the open round has accepted.", current.accepted)
        yield _gauge("phonograd_round_needed", "Accepted updates that close it.", current.clients_per_round)
        closing = current.closing
        due = self._coordinator.due_seconds
        yield _gauge("phonograd_round_due_seconds", "Seconds since it should have closed; 0 before.", due)
        yield _gauge("phonograd_round_closing", "1 while the server trains its model, else 0.", closing is not None)
        yield _gauge("phonograd_round_closing_share", "Share of that work done.", closing.share if closing else 0)
        if current.closes_at is not None:
            yield _gauge("phonograd_round_deadline_seconds", "Its deadline, since 1970.", current.closes_at)
        yield _gauge("phonograd_uploads_under_way", "Uploads in progress.", len(uploads))
        missing = sum(upload.length - upload.offset for upload in uploads)
        yield _gauge("phonograd_uploads_missing_bytes", "Bytes that uploads in progress have yet to send.", missing)
        yield _gauge("phonograd_model_bytes", "Size of the current model's file.", current.model_bytes)


def _traffic(traffic: Sequence[Any]) -> Iterator[Metric]:
    nbytes = CounterMetricFamily(
        "phonograd_wire_bytes",
        "Bytes on the wire by purpose of the request, direction, and part of the message.",
        labels=["kind", "direction", "part"],
    )
    of_tcp = CounterMetricFamily(
        "phonograd_tcp_bytes", "Bytes that TCP carried of them, TLS included, if known.", labels=["kind", "direction"]
    )
    requests = CounterMetricFamily("phonograd_wire_requests", "Requests by purpose.", labels=["kind"])
    for row in traffic:
        requests.add_metric([row.kind], row.requests)
        nbytes.add_metric([row.kind, "up", "header"], row.up_header_bytes)
        nbytes.add_metric([row.kind, "up", "body"], row.up_body_bytes)
        nbytes.add_metric([row.kind, "down", "header"], row.down_header_bytes)
        nbytes.add_metric([row.kind, "down", "body"], row.down_body_bytes)
        for direction, carried in (("up", row.up_tcp_bytes), ("down", row.down_tcp_bytes)):
            if carried is not None:
                of_tcp.add_metric([row.kind, direction], carried)
    yield nbytes
    yield of_tcp
    yield requests


def _updates(session: Session, traffic: Sequence[Any]) -> Iterator[Metric]:
    states, outcomes, codecs = Counter[str](), Counter[str](), Counter[str]()
    starts = 0
    for row in sums.update_sums(session):
        states[row.state] += row.updates
        starts += row.requests
        if row.state == "accepted":
            codecs[str(row.codec)] += row.length
        outcomes.update(dict(outcome_bytes(row.state, row.length, row.received)))
    sent = sum(row.up_body_bytes for row in traffic if row.kind == "upload")
    outcomes["retried"] += sent_in_vain(sent, outcomes.values())
    # Gauges: an upload under way becomes accepted, and a rollback makes an accepted one discarded.
    yield _gauges("phonograd_updates", "Updates by outcome.", "state", states)
    yield _gauges("phonograd_update_bytes", "Bytes of update bodies by outcome.", "outcome", outcomes)
    yield _gauges("phonograd_accepted_bytes", "Bytes of accepted updates by codec.", "codec", codecs)
    yield CounterMetricFamily("phonograd_upload_starts", "Requests that started or resumed an upload.", value=starts)


def _rounds(session: Session) -> Iterator[Metric]:
    closed = CounterMetricFamily(
        "phonograd_rounds_closed", "Closed rounds by the reason they ended.", labels=["ending"]
    )
    # All endings from the start: Prometheus sees no increase in a counter that begins with its first event.
    for ending, count in (dict.fromkeys(get_args(Ending), 0) | sums.rounds_by_ending(session)).items():
        closed.add_metric([ending], count)
    yield closed
    if (row := queries.open_round(session)) is not None:
        yield _gauge("phonograd_round_opened_seconds", "When the open round began, since 1970.", row.opened_at)
        if (budget := StrategySettings.from_json(row.strategy).epsilon_budget) is not None:
            yield _gauge("phonograd_epsilon_budget", "Limit of phonograd_epsilon, by the round's strategy.", budget)


def _privacy(epsilon: float, unbounded: int) -> Iterator[Metric]:
    if unbounded or math.isfinite(epsilon):
        yield _gauge("phonograd_epsilon", f"Privacy spent so far by phones in private rounds: {NEIGHBOURS}.", epsilon)
        yield _gauge(
            "phonograd_epsilon_infinite_phones",
            "Phones whose updates are in a model published without noise.",
            unbounded,
        )


def _gauge(name: str, what: str, value: float) -> Metric:
    return GaugeMetricFamily(name, what, value=value)


def _gauges(name: str, what: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, what, labels=[label])
    for value, amount in sorted(values.items()):
        family.add_metric([value], amount)
    return family
