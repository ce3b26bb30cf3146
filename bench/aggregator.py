"""One run of an aggregator in a process of its own: updates in files to their average, once, then it leaves.

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
    """What a peer (a module) is told. `updates`: path and weight of each; `average`: where the result goes."""

    peer: str
    base: str
    updates: Sequence[tuple[str, int]]
    average: str


class Aggregator(Protocol):
    """What `load(job)` of a peer's module returns: the updates, as far as the peer needs them in memory beforehand."""

    @property
    def versions(self) -> Mapping[str, str]:
        """Of the packages that do the work."""
        ...

    def aggregate(self) -> Callable[[Path], object]:
        """Average all updates; what is returned writes the average as a tensor file, outside the measurement."""
        ...


def measure(job: AggregationJob) -> dict[str, Any]:
    """Load, aggregate, and say what both cost. A package that is not here: {"left_out": why}."""
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
    os.dup2(2, 1)  # libraries print where they like; stdout is kept for the answer
    sys.stdout = sys.stderr  # in the order they print: the last line is what a failure is told by
    print(json.dumps(measure(AggregationJob(**json.loads(sys.argv[1])))), file=answers, flush=True)
