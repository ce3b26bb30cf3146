"""Every request, once it is over: a line in the log, and a place in the histogram that /metrics shows."""

import bisect
import logging
import threading
from dataclasses import dataclass, field

from starlette.routing import Match, Route
from starlette.types import Scope

from phonograd.server_agg.http.wire import RequestWire
from phonograd.server_agg.log_format import event
from phonograd.server_agg.storage.ledger import WireBytes

log = logging.getLogger(__name__)

# Seconds. The long ones are uploads over slow networks.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
METHODS = ("GET", "HEAD", "POST", "PATCH", "DELETE", "OPTIONS")
# Asked for every second or so by programs: these would be most of the log.
POLLED = ("/healthz", "/metrics", "/dashboard/live")
UNMATCHED = "unmatched"


@dataclass(frozen=True)
class Labels:
    """What requests are told apart by: few values each, none of them a stranger's text. `status` "": no answer."""

    method: str
    route: str
    status: str


@dataclass
class Histogram:
    """Requests of one kind by the seconds they took: their number in each of BUCKETS and beyond, and the sum."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        self.counts[bisect.bisect_left(BUCKETS, seconds)] += 1
        self.seconds += seconds


class RequestObserver:
    """Logs and counts requests; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._histograms: dict[Labels, Histogram] = {}

    def observe(self, scope: Scope, wire: RequestWire, cost: WireBytes) -> None:
        """Take note of a request that is over."""
        method = scope["method"] if scope["method"] in METHODS else "other"
        labels = Labels(method, route_of(scope), str(wire.status or ""))
        with self._lock:
            self._histograms.setdefault(labels, Histogram()).add(wire.seconds)
        up, down = cost.up_headers + cost.up_body, cost.down_headers + cost.down_body
        log.log(
            logging.DEBUG if labels.route in POLLED else logging.INFO,
            "%s %s %s: %d bytes up, %d down, %.3f s%s",
            method, labels.route, labels.status or "broke off", up, down, wire.seconds,
            f", {wire.phone}" if wire.phone else "",
            extra=event(
                "request", method=method, route=labels.route, status=wire.status, bytes_up=up, bytes_down=down,
                seconds=round(wire.seconds, 6), phone=wire.phone or None, round=wire.round,
            ),
        )  # fmt: skip

    def histograms(self) -> dict[Labels, Histogram]:
        """All so far, since the server started."""
        with self._lock:
            return {labels: Histogram(list(one.counts), one.seconds) for labels, one in self._histograms.items()}


def route_of(scope: Scope) -> str:
    """The path as its route writes it: a request refused before it reached one has it too."""
    for route in scope["app"].routes:
        if isinstance(route, Route) and route.matches(scope)[0] != Match.NONE:
            return route.path
    return UNMATCHED
