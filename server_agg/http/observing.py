"""Every finished request: a line in the log, and a place in the histogram that /metrics shows."""

import logging

from prometheus_client import CollectorRegistry, Histogram
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
    for route in scope["app"].routes:
        if isinstance(route, Route) and route.matches(scope)[0] != Match.NONE:
            return route.path
    return UNMATCHED
