"""/metrics for Prometheus: taken from the ledger at every scrape, so that a restart forgets nothing.

Only the seconds of requests are of this process's life; Prometheus knows how to add those up.
"""

import resource
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from sqlalchemy import func, select
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from phonograd import __version__
from phonograd.server_agg.http.observing import BUCKETS, RequestObserver
from phonograd.server_agg.http.operations import Answer, operation
from phonograd.server_agg.report.document import outcome_bytes
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.storage import queries
from phonograd.server_agg.storage.tables import Quality, Round, Traffic, Update

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class MetricsRoute:
    """The handler over an open coordinator."""

    def __init__(self, coordinator: Coordinator, observer: RequestObserver):
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_FromLedger(coordinator))
        self._registry.register(_OfThisProcess(coordinator, observer))

    @operation("GET /metrics", "admin", {200: Answer("Text exposition 0.0.4.", str, (CONTENT_TYPE,))})
    async def metrics(self, request: Request) -> Response:
        """For Prometheus."""
        del request
        text = await run_in_threadpool(generate_latest, self._registry)
        return Response(text, headers={"Content-Type": CONTENT_TYPE})


class _FromLedger(Collector):
    def __init__(self, coordinator: Coordinator):
        self._coordinator = coordinator

    def collect(self) -> Iterable[Metric]:
        with self._coordinator.ledger.reading() as session:
            found = [*_traffic(session), *_updates(session), *_rounds(session), *self._quality(session)]
        yield from found
        yield from self._open_round()

    def _quality(self, session: Session) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            "phonograd_quality", "What evaluators found the current model to be worth.", labels=["metric"]
        )
        for row in session.scalars(select(Quality).where(Quality.sha256 == self._coordinator.current.base_sha256)):
            family.add_metric([row.metric], row.value)
        yield family

    def _open_round(self) -> Iterator[Metric]:
        current, uploads = self._coordinator.current, self._coordinator.uploads.unfinished()
        yield _gauge("phonograd_round", "Number of the open round.", current.round)
        yield _gauge("phonograd_round_accepted", "Updates that the open round has accepted.", current.accepted)
        yield _gauge("phonograd_round_needed", "Accepted updates that close it.", current.clients_per_round)
        if current.closes_at is not None:
            yield _gauge("phonograd_round_deadline_seconds", "Its deadline, since 1970.", current.closes_at)
        yield _gauge("phonograd_uploads_under_way", "Uploads begun and not decided on.", len(uploads))
        missing = sum(upload.length - upload.offset for upload in uploads)
        yield _gauge("phonograd_uploads_missing_bytes", "Bytes that they have still to send.", missing)
        yield _gauge("phonograd_model_bytes", "Size of the current model's file.", current.model_bytes)


class _OfThisProcess(Collector):
    def __init__(self, coordinator: Coordinator, observer: RequestObserver):
        self._coordinator = coordinator
        self._observer = observer

    def collect(self) -> Iterable[Metric]:
        build = GaugeMetricFamily("phonograd_build_info", "Always 1; says which version runs.", labels=["version"])
        build.add_metric([__version__], 1)
        yield build
        yield _gauge("process_resident_memory_bytes", "Memory of the server's process.", resident_bytes())
        free = shutil.disk_usage(self._coordinator.folder.root).free
        yield _gauge("phonograd_state_free_bytes", "Free on the disk of the state folder.", free)
        requests = HistogramMetricFamily(
            "phonograd_http_request_seconds", "Requests by what they took.", labels=["method", "route", "status"]
        )
        for labels, one in self._observer.histograms().items():
            below, buckets = 0, []
            for limit, count in zip([*map(str, BUCKETS), "+Inf"], one.counts, strict=True):
                below += count
                buckets.append((limit, float(below)))
            requests.add_metric([labels.method, labels.route, labels.status], buckets, one.seconds)
        yield requests


def resident_bytes() -> int:
    """The process's resident memory; where the system does not say, the most it ever was."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    return pages * resource.getpagesize()


def _traffic(session: Session) -> Iterator[Metric]:
    nbytes = CounterMetricFamily(
        "phonograd_wire_bytes",
        "Bytes on the wire by what the request was for, direction, and part of the message.",
        labels=["kind", "direction", "part"],
    )
    requests = CounterMetricFamily("phonograd_wire_requests", "Requests by what they were for.", labels=["kind"])
    columns = (
        ("up", "header", Traffic.up_header_bytes), ("up", "body", Traffic.up_body_bytes),
        ("down", "header", Traffic.down_header_bytes), ("down", "body", Traffic.down_body_bytes),
    )  # fmt: skip
    wanted = select(Traffic.kind, func.sum(Traffic.requests), *(func.sum(column) for _, _, column in columns))
    for kind, count, *sums in session.execute(wanted.group_by(Traffic.kind)):
        requests.add_metric([kind], count)
        for (direction, part, _), total in zip(columns, sums, strict=True):
            nbytes.add_metric([kind, direction, part], total)
    yield nbytes
    yield requests


def _updates(session: Session) -> Iterator[Metric]:
    # Gauges: an upload under way becomes accepted, and a rollback makes an accepted one discarded.
    updates = GaugeMetricFamily("phonograd_updates", "Updates by what became of them.", labels=["state"])
    outcomes = GaugeMetricFamily(
        "phonograd_update_bytes", "Bytes of their bodies by what became of them.", labels=["outcome"]
    )
    codecs = GaugeMetricFamily("phonograd_accepted_bytes", "Bytes of accepted updates by codec.", labels=["codec"])
    setups = CounterMetricFamily("phonograd_upload_setups", "Requests that began an upload or went on with one.")
    states: dict[str, int] = {}
    by_outcome: dict[str, int] = {}
    by_codec: dict[str, int] = {}
    total = 0
    wanted = select(
        Update.state, Update.codec, func.count(), func.sum(Update.length), func.sum(Update.received_bytes),
        func.sum(Update.requests),
    ).group_by(Update.state, Update.codec)  # fmt: skip
    for state, codec, count, length, received, requests in session.execute(wanted):
        states[state] = states.get(state, 0) + count
        total += requests
        if state == "accepted":
            by_codec[str(codec)] = by_codec.get(str(codec), 0) + length
        for outcome, nbytes in outcome_bytes(state, length, received):
            by_outcome[outcome] = by_outcome.get(outcome, 0) + nbytes
    for family, values in ((updates, states), (outcomes, by_outcome), (codecs, by_codec)):
        for label, value in sorted(values.items()):
            family.add_metric([label], value)
        yield family
    setups.add_metric([], total)
    yield setups


def _rounds(session: Session) -> Iterator[Metric]:
    closed = CounterMetricFamily(
        "phonograd_rounds_closed", "Rounds that are over, by why they ended.", labels=["ending"]
    )
    wanted = select(Round.ending, func.count()).where(Round.closed_at.is_not(None)).group_by(Round.ending)
    for ending, count in session.execute(wanted):
        closed.add_metric([str(ending)], count)
    yield closed
    epsilon = session.scalar(
        select(Round.epsilon).where(Round.epsilon.is_not(None)).order_by(Round.number.desc()).limit(1)
    )
    unbounded = sum(queries.phones_with_infinite_epsilon(session).values())
    if epsilon is not None:
        yield _gauge("phonograd_epsilon", "Privacy spent so far, of phones in private rounds alone.", epsilon)
    yield _gauge(
        "phonograd_epsilon_infinite_phones", "Phones whose updates are in a model published without noise.", unbounded
    )


def _gauge(name: str, what: str, value: float) -> Metric:
    return GaugeMetricFamily(name, what, value=value)
