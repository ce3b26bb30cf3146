"""Seconds and memory of aggregation for few and many phones: phonograd's fold, in Flower too, and Flower's FedAvg."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from phonograd.bench.aggregator import AggregationJob
from phonograd.bench.contestants import ROOT, BenchError
from phonograd.bench.environment import Environment, this_environment
from phonograd.bench.markdown import MB
from phonograd.bench.measuring import in_fresh_process
from phonograd.bench.synthetic import random_weights, write_synthetic_updates
from phonograd.device_runtime.formats.tensor_file import TensorFile, save_tensors, tile_ranges
from phonograd.device_runtime.update.codecs import CODECS
from phonograd.export.presets import preset_named

SCHEMA_VERSION = 1
FULL = "full-f32"
FLOWER, FLOWER_PEER = "flower", "phonograd.bench.peers.flower"
UPDATES_PEER = "phonograd.bench.peers.flower_updates"
FLOWER_HINT = "pip install 'phonograd[flower]', best in an environment of its own, and give --flower-python PYTHON"
TOKENS = 3000  # of the first phone; each next one has 100 more
# Flower sums in float32: each of 40 additions may round by 2^-25 of weights of at most 0.3.
TOLERANCE = 1e-6

Say = Callable[[str], object]


@dataclass(frozen=True)
class AggregateBenchConfig:
    """counts: numbers of phones to average; distinct: update files, reused in turn; rounds: runs of each contestant."""

    preset: str = "popov-2x650"
    counts: tuple[int, ...] = (10, 40)
    codecs: tuple[str, ...] = (FULL,)
    flower_python: str | None = None
    distinct: int = 10
    rounds: int = 3

    def __post_init__(self) -> None:
        for codec in self.codecs:
            if codec not in CODECS:
                raise ValueError(f"codec is {codec!r}, expected one of {', '.join(CODECS)}")


@dataclass(frozen=True)
class Aggregated:
    """One contestant's figures for one number of phones.

    aggregate_seconds: median; the fold's includes reading the update files, Flower's starts with all updates in memory,
    and load_seconds is the time to load them. ratio: median over rounds of the seconds divided by the fold's, without
    loading; ratio_with_loading: the same with loading. difference: largest absolute difference of a weight from the
    first contestant's average. own_rss_bytes: the peak minus that of the interpreter with all packages imported.
    """

    name: str
    updates: int
    update_bytes: int
    load_seconds: float
    aggregate_seconds: float
    ratio: float
    ratio_with_loading: float
    peak_rss_bytes: int
    own_rss_bytes: int
    difference: float
    versions: Mapping[str, str]


@dataclass(frozen=True)
class AggregateBench:
    """The whole benchmark. disagreements: a line for each average that differs from the first contestant's."""

    kind: str
    schema_version: int
    environment: Environment
    preset: str
    weight_bytes: int
    rounds: int
    contestants: tuple[Aggregated, ...]
    left_out: Mapping[str, str]
    disagreements: tuple[str, ...]


@dataclass(frozen=True)
class _Entry:
    name: str
    peer: str
    codec: str
    python: str = sys.executable


def bench_aggregate(config: AggregateBenchConfig, say: Say = str) -> AggregateBench:
    """Run all contestants in turn, each run in a fresh process. Raises BenchError, ArtifactsError, StorageError."""
    model = preset_named(config.preset).model
    entries = [_Entry(f"fold {codec}", "phonograd.bench.peers.fold", codec) for codec in config.codecs]
    flower_python = config.flower_python or sys.executable
    entries.append(_Entry(FLOWER, FLOWER_PEER, FULL, flower_python))
    entries += [_Entry(f"{FLOWER}, fold {codec}", UPDATES_PEER, codec, flower_python) for codec in config.codecs]
    left_out: dict[str, str] = {}
    measured: list[Aggregated] = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        say(f"making {config.distinct} updates of {config.preset}")
        in_fresh_process(_make_updates, folder, config)
        for count in config.counts:
            entries = [entry for entry in entries if entry.name not in left_out]
            runs: dict[str, list[dict[str, Any]]] = {entry.name: [] for entry in entries}
            for number in range(config.rounds):
                say(f"{count} updates, round {number + 1} of {config.rounds}")
                first = number % len(entries)
                for entry in (*entries[first:], *entries[:first]):
                    if entry.name in left_out:
                        continue
                    answer = _run(entry, _job(folder, entry, count, config.distinct))
                    if "left_out" in answer:
                        left_out[entry.name] = f"{answer['left_out']}; {FLOWER_HINT}"
                    else:
                        runs[entry.name].append(answer)
            measured += _measured(folder, entries, count, runs)
    return AggregateBench(
        kind="aggregate",
        schema_version=SCHEMA_VERSION,
        environment=this_environment(),
        preset=config.preset,
        weight_bytes=4 * model.parameters,
        rounds=config.rounds,
        contestants=tuple(measured),
        left_out=left_out,
        disagreements=tuple(
            f"{one.name} over {one.updates} updates is off by {one.difference:.2g}"
            for one in measured
            if not one.difference <= TOLERANCE
        ),
    )


def _make_updates(folder: Path, config: AggregateBenchConfig) -> None:
    save_tensors(folder / "base", random_weights(preset_named(config.preset).model, 0))
    codecs = {FULL, *config.codecs}
    for phone in range(config.distinct):
        paths = {codec: _update(folder, codec, phone) for codec in codecs}
        write_synthetic_updates(folder / "base", paths, phone, TOKENS + 100 * phone)


def _update(folder: Path, codec: str, phone: int) -> Path:
    return folder / f"{codec}-{phone}"


def _job(folder: Path, entry: _Entry, count: int, distinct: int) -> AggregationJob:
    phones = [phone % distinct for phone in range(count)]
    updates = [(str(_update(folder, entry.codec, phone)), TOKENS + 100 * phone) for phone in phones]
    return AggregationJob(entry.peer, str(folder / "base"), updates, str(_average(folder, entry)))


def _average(folder: Path, entry: _Entry) -> Path:
    return folder / f"average-{entry.name.replace(' ', '-')}"


def _run(entry: _Entry, job: AggregationJob) -> dict[str, Any]:
    """A run in a fresh process with malloc's default settings. Raises BenchError with its last line of stderr."""
    line = [entry.python, "-c", "import phonograd.bench.aggregator as a; a.main()", json.dumps(asdict(job))]
    # The peer may run in another Python, which finds this project by its path.
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    try:
        done = subprocess.run(line, capture_output=True, text=True, check=False, env=environment)
    except OSError as error:
        raise BenchError(f"bench: {entry.name}: {entry.python} cannot be run ({error.strerror})") from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise BenchError(f"bench: {entry.name} exited with code {done.returncode}: {last}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _measured(
    folder: Path, entries: Sequence[_Entry], count: int, runs: Mapping[str, Sequence[Mapping[str, Any]]]
) -> Iterator[Aggregated]:
    first = entries[0]
    for entry in entries:
        if not (own := runs[entry.name]):
            continue
        yield Aggregated(
            name=entry.name,
            updates=count,
            update_bytes=_update(folder, entry.codec, 0).stat().st_size,
            load_seconds=statistics.median(run["load_seconds"] for run in own),
            aggregate_seconds=statistics.median(run["aggregate_seconds"] for run in own),
            ratio=_ratio(own, runs[first.name], "aggregate_seconds"),
            ratio_with_loading=_ratio(own, runs[first.name], "load_seconds", "aggregate_seconds"),
            peak_rss_bytes=max(run["peak_rss_bytes"] for run in own),
            own_rss_bytes=max(run["own_rss_bytes"] for run in own),
            difference=difference(_average(folder, first), _average(folder, entry)),
            versions=own[0]["versions"],
        )


def _ratio(own: Sequence[Mapping[str, Any]], first: Sequence[Mapping[str, Any]], *keys: str) -> float:
    """Median over rounds of the seconds under `keys`, divided by the first contestant's in the same round."""
    pairs = zip(own, first, strict=True)
    return float(statistics.median(sum(a[key] for key in keys) / sum(b[key] for key in keys) for a, b in pairs))


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


def aggregate_rows(result: AggregateBench) -> Iterator[dict[str, object]]:
    """The table that the command prints."""
    for one in result.contestants:
        yield {
            "contestant": one.name,
            "updates": one.updates,
            "update MB": one.update_bytes / MB,
            "seconds": one.aggregate_seconds,
            "and loading": one.load_seconds,
            "ratio": one.ratio,
            "with loading": one.ratio_with_loading,
            "peak MB": round(one.peak_rss_bytes / MB),
            "own MB": round(one.own_rss_bytes / MB),
            "largest difference": one.difference,
        }
    for name, reason in result.left_out.items():
        yield {"contestant": f"{name}: left out, {reason}"}
