"""`phonograd serve` that counts where its time goes; for the benchmark alone, started by `parts`."""

import contextlib
import functools
import json
import runpy
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from phonograd.bench.capacity.parts import DECODING, DISK, EVENT_LOOP, HASH, LEDGER, MAKING
from phonograd.server_agg.http.receiving import Receiving
from phonograd.server_agg.rounds.aggregator import RoundAggregator
from phonograd.server_agg.rounds.live_round import LiveRound
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.state_folder import StateFolder
from phonograd.server_agg.storage.upload_bytes import FileBytes, FileSink

METHODS: tuple[tuple[Any, str, str], ...] = (
    (Receiving, "_store", HASH),
    (FileSink, "__init__", DISK),
    (FileSink, "write", DISK),
    (FileBytes, "delete", DISK),
    (StateFolder, "sync", DISK),
    (StateFolder, "link_into_place", DISK),
    (RoundAggregator, "_measure_file", DECODING),
    (RoundAggregator, "take", DECODING),
    (LiveRound, "close_round", MAKING),
)


class Counters:
    """CPU and clock seconds of each part. A part within another is not counted in that one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._totals: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._own = threading.local()  # `began` and `parts`: when the innermost of a thread's parts began or went on

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count the block as `name`."""
        parts = vars(self._own).setdefault("parts", [])
        self._count(parts)
        parts.append(name)
        try:
            yield
        finally:
            self._count(parts)
            parts.pop()

    def _count(self, parts: list[str]) -> None:
        now = time.thread_time(), time.perf_counter()
        if parts:
            with self._lock:
                total = self._totals[parts[-1]]
                total[0] += now[0] - self._own.began[0]
                total[1] += now[1] - self._own.began[1]
        self._own.began = now

    def so_far(self) -> dict[str, list[float]]:
        """All parts, and the event loop, for whose thread this is. "": the whole process."""
        with self._lock:
            return {**self._totals, EVENT_LOOP: [time.thread_time(), 0.0], "": [time.process_time(), 0.0]}


def count_time(counters: Counters, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, whose time is counted."""

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        with counters.part(name):
            return function(*arguments, **named)

    return call


def in_transaction(counters: Counters, transaction: Callable[[Ledger], Any]) -> Callable[[Ledger], Any]:
    """`transaction`, whose time is the ledger's, that of its block too."""

    @contextlib.contextmanager
    def counting(ledger: Ledger) -> Iterator[Any]:
        with counters.part(LEDGER), transaction(ledger) as session:
            yield session

    return counting


def main() -> None:
    """`OUT serve ...`: serve, and at each SIGUSR1 write what was counted so far to OUT, atomically."""
    out, counters = Path(sys.argv[1]), Counters()
    for place, name, part in METHODS:
        setattr(place, name, count_time(counters, part, getattr(place, name)))
    for name in ("reading", "writing"):
        setattr(Ledger, name, in_transaction(counters, getattr(Ledger, name)))

    def tell(*_: object) -> None:
        partial = out.with_suffix(".partial")
        partial.write_text(json.dumps(counters.so_far()))
        partial.replace(out)

    signal.signal(signal.SIGUSR1, tell)
    del sys.argv[1]
    runpy.run_module("phonograd", run_name="__main__")
