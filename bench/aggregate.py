"""Seconds and memory of aggregation for few and many phones: phonograd's fold, in Flower too, and Flower's FedAvg."""

import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from phonograd.bench.contestants import Answers, BenchError, Entry, Say, Worker, ratio_of, run_in_turn
from phonograd.bench.markdown import MB, Column, Table, figure, name_with_versions
from phonograd.bench.measuring import in_fresh_process
from phonograd.bench.results import Document, result_of
from phonograd.bench.synthetic import random_weights, write_synthetic_updates
from phonograd.bench.worker import AggregationJob
from phonograd.device_runtime.base.errors import how_to_install
from phonograd.device_runtime.formats.tensor_file import TensorFile, save_tensors, tile_ranges
from phonograd.export.presets import preset_named

SCHEMA_VERSION = 1
FULL = "full-f32"
FLOWER, FLOWER_PEER = "flower", "phonograd.bench.peers.flower"
UPDATES_PEER = "phonograd.bench.peers.flower_updates"
FLOWER_HINT = f"best in an environment of its own, {how_to_install('flower')}, and give --flower-python PYTHON"
TOKENS = 3000  # of the first phone; each next one has 100 more
# Flower sums in float32: each of 40 additions may round by 2^-25 of weights of at most 0.3.
TOLERANCE = 1e-6


@dataclass(frozen=True)
class AggregateBenchConfig:
    """counts: numbers of phones to average; distinct: update files, reused in turn; rounds: runs of each contestant."""

    preset: str = "popov-2x650"
    counts: tuple[int, ...] = (10, 40)
    codecs: tuple[str, ...] = (FULL,)
    flower_python: str | None = None
    distinct: int = 10
    rounds: int = 3


def bench_aggregate(config: AggregateBenchConfig, say: Say = str) -> dict[str, Any]:
    """Run all contestants in turn, each run in a fresh process. Raises BenchError, ArtifactsError, StorageError.

    The result has a line in `disagreements` for each average that differs from the first contestant's.
    """
    python = config.flower_python or sys.executable
    entries = [
        *(Entry(f"fold {codec}", "phonograd.bench.peers.fold", codec) for codec in config.codecs),
        Entry(FLOWER, FLOWER_PEER, FULL, python, hint=FLOWER_HINT),
        *(Entry(f"{FLOWER}, fold {codec}", UPDATES_PEER, codec, python, hint=FLOWER_HINT) for codec in config.codecs),
    ]
    left_out: dict[str, str] = {}
    measured: list[Answers] = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        say(f"making {config.distinct} updates of {config.preset}")
        in_fresh_process(_make_updates, folder, config)
        for count in config.counts:
            say(f"{count} updates")

            def run(entry: Entry, count: int = count) -> Answers:
                with Worker(entry, _job(folder, entry, count, config.distinct)) as worker:
                    answers = worker.answer()
                    worker.end()
                return answers

            runs = run_in_turn(entries, config.rounds, run, left_out, say)
            measured += _figures(folder, entries, count, runs)
    return result_of(
        "aggregate",
        SCHEMA_VERSION,
        preset=config.preset,
        weight_bytes=4 * preset_named(config.preset).model.parameters,
        rounds=config.rounds,
        contestants=measured,
        left_out=left_out,
        disagreements=[
            f"{one['name']} over {one['updates']} updates is off by {one['difference']:.2g}"
            for one in measured
            if not one["difference"] <= TOLERANCE
        ],
    )


def _make_updates(folder: Path, config: AggregateBenchConfig) -> None:
    save_tensors(folder / "base", random_weights(preset_named(config.preset).model, 0))
    codecs = {FULL, *config.codecs}
    for phone in range(config.distinct):
        paths = {codec: _update(folder, codec, phone) for codec in codecs}
        write_synthetic_updates(folder / "base", paths, phone, TOKENS + 100 * phone)


def _update(folder: Path, codec: str, phone: int) -> Path:
    return folder / f"{codec}-{phone}"


def _job(folder: Path, entry: Entry, count: int, distinct: int) -> AggregationJob:
    phones = [phone % distinct for phone in range(count)]
    updates = [(str(_update(folder, entry.variant, phone)), TOKENS + 100 * phone) for phone in phones]
    return AggregationJob(entry.peer, str(folder / "base"), updates, str(_average(folder, entry)))


def _average(folder: Path, entry: Entry) -> Path:
    return folder / f"average-{entry.name.replace(' ', '-')}"


def _figures(
    folder: Path, entries: Sequence[Entry], count: int, runs: Mapping[str, Sequence[Answers]]
) -> Iterator[Answers]:
    """The figures of each contestant for one number of phones.

    aggregate_seconds: median; the fold's includes reading the update files, Flower's starts with all updates in memory,
    and load_seconds is the time to load them. ratio: median over rounds of the seconds divided by the fold's, without
    loading; ratio_with_loading: the same with loading. difference: largest absolute difference of a weight from the
    first contestant's average. own_rss_bytes: the peak minus that of the interpreter with all packages imported.
    """
    first = entries[0]
    for entry in entries:
        if not (own := runs[entry.name]):
            continue
        yield {
            "name": entry.name,
            "updates": count,
            "update_bytes": _update(folder, entry.variant, 0).stat().st_size,
            "load_seconds": statistics.median(run["load_seconds"] for run in own),
            "aggregate_seconds": statistics.median(run["aggregate_seconds"] for run in own),
            "ratio": ratio_of(own, runs[first.name], "aggregate_seconds"),
            "ratio_with_loading": ratio_of(own, runs[first.name], "load_seconds", "aggregate_seconds"),
            "peak_rss_bytes": max(run["peak_rss_bytes"] for run in own),
            "own_rss_bytes": max(run["own_rss_bytes"] for run in own),
            "difference": difference(_average(folder, first), _average(folder, entry)),
            "versions": own[0]["versions"],
        }


def difference(one: Path, other: Path) -> float:
    """Largest absolute difference of two tensor files' elements. Raises BenchError if they can't be compared."""
    largest = 0.0
    with TensorFile(one) as a, TensorFile(other) as b:
        if a.specs != b.specs:
            raise BenchError(f"bench: {other.name} and {one.name} have different tensors, expected one model's")
        for name, spec in a.specs.items():
            for start, stop in tile_ranges(spec.elements):
                gap = float(np.abs(a.read_range(name, start, stop) - b.read_range(name, start, stop)).max())
                if not np.isfinite(gap):
                    raise BenchError(f"bench: {other.name}, tensor {name}: a weight is not finite; check the updates")
                largest = max(largest, gap)
    return largest


def section(document: Document) -> Iterator[str | Table]:
    """See phonograd.bench.results."""
    weights = document["weight_bytes"]
    yield f"Aggregation: {document['preset']}, {weights / MB:.1f} MB of weights"
    yield (
        f"The average of the same updates, {document['rounds']} rounds in turn, each run in its own process. The "
        "fold reads the updates from their files while it adds them. Flower's FedAvg starts with all updates in "
        "memory; loading is the time to read them. phonograd's fold in Flower gets them one by one, each as a message "
        "with the file's bytes, and also writes the model. Difference: the largest of a weight from the first "
        "contestant's average."
    )
    columns = {
        "contestant": Column(lambda one: name_with_versions(one["name"], one["versions"])),
        "updates": figure("updates", "d"),
        "MB each": figure("update_bytes", ".1f", MB),
        "seconds": figure("aggregate_seconds", ".2f"),
        "loading, s": figure("load_seconds", ".2f"),
        "time / first": figure("ratio", ".2f"),
        "with loading": figure("ratio_with_loading", ".2f"),
        "peak memory, MB": figure("peak_rss_bytes", ".0f", MB),
        "/ weights": figure("peak_rss_bytes", ".1f", weights),
        "largest difference": figure("difference", ".1e"),
    }
    yield Table(f"The average of updates to {document['preset']}", columns, document["contestants"])
