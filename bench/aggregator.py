"""One run of an aggregator in a process of its own: it averages updates from files once, then exits.

stdout: one JSON line. Only NumPy and the peer's own packages are needed, so that a peer can run in another Python
environment.
"""

import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from phonograd.bench.measuring import peak_rss_bytes


@dataclass(frozen=True)
class AggregationJob:
    """The input of a peer (a module). updates: path and weight of each; average: the path of the result."""

    peer: str
    base: str
    updates: Sequence[tuple[str, int]]
    average: str


class Aggregator(Protocol):
    """Returned by `load(job)` of a peer's module; holds the updates in memory if the peer needs them there."""

    @property
    def versions(self) -> Mapping[str, str]:
        """The versions of the packages in use."""
        ...

    def aggregate(self) -> Callable[[Path], object]:
        """Average all updates. Returns a function that writes the average as a tensor file, outside the measurement."""
        ...


def measure(job: AggregationJob) -> dict[str, Any]:
    """Load and aggregate, and return the time and memory of both; {"left_out": reason} if a package is missing."""
    try:
        peer = importlib.import_module(job.peer)
    except ImportError as error:
        return {"left_out": str(error)}
    baseline = peak_rss_bytes()
    began = time.perf_counter()
    aggregator: Aggregator = peer.load(job)
    loaded = time.perf_counter()
    write = aggregator.aggregate()
    done = time.perf_counter()
    peak = peak_rss_bytes()
    write(Path(job.average))
    return {
        "load_seconds": loaded - began,
        "aggregate_seconds": done - loaded,
        "peak_rss_bytes": peak,
        "own_rss_bytes": peak - baseline,
        "versions": dict(aggregator.versions),
    }


def main() -> None:
    """Entry point: the job as JSON in the first argument."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # libraries may print to stdout, which is only for the answer
    sys.stdout = sys.stderr  # keeps the order of their lines: the last one is a failure's message
    print(json.dumps(measure(AggregationJob(**json.loads(sys.argv[1])))), file=answers, flush=True)
