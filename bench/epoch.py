"""Seconds and memory of the training steps of several runtimes, in turn on the same windows; the machine's ceiling."""

import contextlib
import math
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from phonograd.bench.contestants import BenchError, Entry, Turn, Worker
from phonograd.bench.environment import Environment, this_environment
from phonograd.bench.flops import ceiling_flop, ceiling_shape, phase_flop, step_flop
from phonograd.bench.worker import Job
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.formats.manifest import MANIFEST, WEIGHTS, Manifest, TrainingConfig, open_artifacts
from phonograd.device_runtime.formats.model_config import LanguageModelConfig

SCHEMA_VERSION = 2
CEILINGS = tuple(
    Entry(
        f"product: {variant}", f"phonograd.bench.peers.{'torch_product' if 'torch' in variant else 'product'}", variant
    )
    for variant in ("openblas", "torch", "native", "torch bf16", "native bf16")
)
PAPER_EPOCH_STEPS = 20  # about 20 KB of text: 4,000 tokens in windows of 200

Say = Callable[[str], object]


@dataclass(frozen=True)
class EpochBenchConfig:
    """steps: measured rounds; warm_up: rounds before them; tolerance: relative, between the last losses in float32. A
    dozen steps amplify rounding to a thousandth; parity compares single steps.
    """

    steps: int = 10
    warm_up: int = 2
    threads: int = 2
    tolerance: float = 5e-3


@dataclass(frozen=True)
class Kind:
    """What contestants train: one artifacts folder."""

    manifest_sha256: str
    weights_sha256: str
    model: LanguageModelConfig
    training: TrainingConfig
    step_gflop: float
    weight_bytes: int


@dataclass(frozen=True)
class Ceiling:
    """A library's rate of the output layer's product in turns of its own. about: as the library describes itself."""

    name: str
    reduced: bool
    gflops: float
    about: Mapping[str, Any]


@dataclass(frozen=True)
class Phase:
    """A phase of the native engine's step: median seconds, its GFLOP, and their rate as a fraction of the ceiling's.

    No fraction: a phase without products, or no ceiling.
    """

    name: str
    seconds: float
    gflop: float
    fraction_of_ceiling: float | None


@dataclass(frozen=True)
class Measured:
    """One contestant's figures.

    kind: the name of what it trains; output_words: words that the softmax runs over, fewer than the vocabulary with an
    output sample; gflop: of a step; gflops: per median second; fraction_of_ceiling: median over rounds of that rate
    divided by the ceiling's in the same round, the fastest of `ceilings` in the contestant's precision; ratio,
    ratio_least: seconds divided by the first contestant's in the same round, median and minimum over rounds;
    own_rss_bytes: peak memory minus the interpreter's before loading; last_loss: of the last step, as the manifest
    defines it, over the output words; phases: of backend native.
    """

    name: str
    kind: str
    output_words: int
    step_seconds: tuple[float, ...]
    median_seconds: float
    p10_seconds: float
    p90_seconds: float
    epoch_seconds: float
    tokens_per_second: float
    gflop: float
    gflops: float
    fraction_of_ceiling: float | None
    ratio: float
    ratio_least: float
    peak_rss_bytes: int
    own_rss_bytes: int
    load_seconds: float
    last_loss: float
    phases: tuple[Phase, ...]
    about: Mapping[str, Any]


@dataclass(frozen=True)
class EpochBench:
    """The whole benchmark. kinds: by name; disagreements: a line for each float32 contestant with another last loss."""

    kind: str
    schema_version: int
    environment: Environment
    threads: int
    kinds: Mapping[str, Kind]
    ceiling_shape: tuple[int, int, int]
    ceilings: tuple[Ceiling, ...]
    warm_up: int
    contestants: tuple[Measured, ...]
    left_out: Mapping[str, str]
    disagreements: tuple[str, ...]


def bench_epoch(
    folders: Mapping[str, Path], entries: Sequence[Entry], config: EpochBenchConfig, say: Say = str
) -> EpochBench:
    """Load all contestants, then run one step of each in every round.

    folders: artifacts by the names of kinds, all of the same vocabulary, minibatch and steps; the ceiling is the first
    one's. Raises BenchError if a contestant fails, none can run here or the folders do not go together, and what
    opening the artifacts raises.
    """
    manifests = {name: open_artifacts(folder).manifest for name, folder in folders.items()}
    first = next(iter(manifests))
    if len({_shape(manifest) for manifest in manifests.values()}) > 1:
        raise BenchError("bench: artifacts of the same vocabulary, minibatch and steps expected; export them so")
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        np.save(place / "windows.npy", _windows(manifests[first], config))
        left_out, workers = {}, []
        for entry in (*CEILINGS, *entries):
            say(f"loading {entry.name}")
            folder = folders[entry.kind or first].resolve()
            windows = str(place / "windows.npy")
            job = Job(entry.peer, str(folder), windows, config.threads, entry.variant, entry.output_sample)
            worker = stack.enter_context(Worker(entry, job))
            worker.wait_until_loaded()
            if worker.left_out is None:
                workers.append(worker)
            else:
                left_out[entry.name] = worker.left_out
        if all(worker.entry in CEILINGS for worker in workers):
            raise BenchError(f"bench: no contestant can run here: {'; '.join(left_out.values()) or 'none was given'}")
        turns = _take_turns(workers, config, say)
    rates = {
        worker.entry: _ceiling_rates(manifests[first], turns[worker.entry.name])
        for worker in workers
        if worker.entry in CEILINGS
    }
    contestants = [worker for worker in workers if worker.entry not in CEILINGS]
    reference = turns[contestants[0].entry.name]
    measured = tuple(
        _measured(
            worker, turns[worker.entry.name], reference, _fastest(rates, worker.entry.reduced), kind, manifests[kind]
        )
        for worker in contestants
        for kind in [worker.entry.kind or first]
    )
    return EpochBench(
        kind="epoch",
        schema_version=SCHEMA_VERSION,
        environment=this_environment(),
        threads=config.threads,
        kinds={name: _kind(folder, manifests[name]) for name, folder in folders.items()},
        ceiling_shape=ceiling_shape(manifests[first]),
        ceilings=tuple(
            Ceiling(
                worker.entry.variant,
                worker.entry.reduced,
                statistics.median(rates[worker.entry]),
                worker.loaded["about"],
            )
            for worker in workers
            if worker.entry in CEILINGS
        ),
        warm_up=config.warm_up,
        contestants=measured,
        left_out=left_out,
        disagreements=_disagreements(
            [one for one in measured if not manifests[one.kind].training.dropout], entries, config.tolerance
        ),
    )


def _shape(manifest: Manifest) -> tuple[int, int, int]:
    return manifest.model.vocabulary, manifest.training.minibatch, manifest.training.bptt


def _kind(folder: Path, manifest: Manifest) -> Kind:
    return Kind(
        manifest_sha256=sha256_of_file(folder / MANIFEST),
        weights_sha256=manifest.files[WEIGHTS].sha256,
        model=manifest.model,
        training=manifest.training,
        step_gflop=step_flop(manifest.model, manifest.training) / 1e9,
        weight_bytes=4 * manifest.model.parameters,
    )


def _ceiling_rates(manifest: Manifest, turns: Sequence[Turn]) -> list[float]:
    """GFLOP/s of a ceiling in each round, by its own clock if it has one."""
    return [ceiling_flop(manifest) / (sum(turn.phases.values()) or turn.seconds) / 1e9 for turn in turns]


def _fastest(rates: Mapping[Entry, Sequence[float]], reduced: bool) -> Sequence[float]:
    """The rates in each round of the fastest ceiling in one precision; empty without one."""
    return max((found for entry, found in rates.items() if entry.reduced == reduced), key=statistics.median, default=())


def _disagreements(measured: Sequence[Measured], entries: Sequence[Entry], tolerance: float) -> tuple[str, ...]:
    """Of contestants in float32, those of the same kind and output words among themselves."""
    reduced = {entry.name for entry in entries if entry.reduced}
    losses: dict[tuple[str, int], dict[str, float]] = {}
    for one in measured:
        if one.name not in reduced:
            losses.setdefault((one.kind, one.output_words), {})[one.name] = one.last_loss
    return tuple(line for group in losses.values() for line in disagreements(group, tolerance))


def _windows(manifest: Manifest, config: EpochBenchConfig) -> Any:
    """[rounds, 2, T, B] ids and their successors by Zipf's law, word n as often as 1 / (n + 1): as a text has words."""
    training = manifest.training
    shape = (config.warm_up + config.steps, training.bptt, training.minibatch)
    uniform = np.random.default_rng(0).random(math.prod(shape) + 1)
    stream = np.exp(uniform * math.log(manifest.model.vocabulary + 1)).astype(np.int64) - 1
    return np.stack([stream[:-1].reshape(shape), stream[1:].reshape(shape)], axis=1)


def _take_turns(workers: Sequence[Worker], config: EpochBenchConfig, say: Say) -> dict[str, list[Turn]]:
    """All turns after warming up, by contestant. Each round begins with another contestant."""
    turns: dict[str, list[Turn]] = {worker.entry.name: [] for worker in workers}
    for window in range(config.warm_up + config.steps):
        say(f"round {window + 1} of {config.warm_up + config.steps}")
        first = window % len(workers)
        for worker in (*workers[first:], *workers[:first]):
            turn = worker.turn(window)
            if window >= config.warm_up:
                turns[worker.entry.name].append(turn)
    return turns


def _measured(
    worker: Worker,
    turns: Sequence[Turn],
    first: Sequence[Turn],
    ceiling: Sequence[float],
    kind: str,
    manifest: Manifest,
) -> Measured:
    seconds = [turn.seconds for turn in turns]
    median = statistics.median(seconds)
    layer = worker.loaded["about"].get("output_layer")
    output_words = layer["words"] if layer else manifest.model.vocabulary
    gflop = step_flop(manifest.model, manifest.training, output_words) / 1e9
    ratios = [own / other.seconds for own, other in zip(seconds, first, strict=True)]
    p10, p90 = np.percentile(seconds, (10, 90))
    loss = turns[-1].loss
    if loss is None:
        raise BenchError(f"bench: {worker.entry.name} returned no loss, expected a number")
    return Measured(
        name=worker.entry.name,
        kind=kind,
        output_words=output_words,
        step_seconds=tuple(seconds),
        median_seconds=median,
        p10_seconds=float(p10),
        p90_seconds=float(p90),
        epoch_seconds=median * PAPER_EPOCH_STEPS,
        tokens_per_second=manifest.training.minibatch * manifest.training.bptt / median,
        gflop=gflop,
        gflops=gflop / median,
        fraction_of_ceiling=_fraction(gflop, seconds, ceiling),
        ratio=statistics.median(ratios),
        ratio_least=min(ratios),
        peak_rss_bytes=turns[-1].peak_rss_bytes,
        own_rss_bytes=turns[-1].peak_rss_bytes - worker.loaded["baseline_rss_bytes"],
        load_seconds=worker.loaded["load_seconds"],
        last_loss=loss,
        phases=_phases(turns, ceiling, output_words, worker.loaded["about"].get("factored", ()), manifest),
        about=worker.loaded["about"],
    )


def _phases(
    turns: Sequence[Turn], ceiling: Sequence[float], output_words: int, factored: Sequence[str], manifest: Manifest
) -> tuple[Phase, ...]:
    """Empty for a contestant that does not time its phases. Raises BenchError if products are in a phase it lacks."""
    names = list(turns[-1].phases)
    if not names:
        return ()
    flop = phase_flop(manifest.model, manifest.training, output_words, names, factored)
    if missing := flop.keys() - names:
        raise BenchError(f"bench: phases {', '.join(sorted(missing))} expected, found {', '.join(names)}")
    taken = {name: [turn.phases[name] for turn in turns] for name in names}
    return tuple(
        Phase(name, statistics.median(seconds), gflop, _fraction(gflop, seconds, ceiling))
        for name, seconds in taken.items()
        for gflop in [flop.get(name, 0) / 1e9]
    )


def _fraction(gflop: float, seconds: Sequence[float], ceiling: Sequence[float]) -> float | None:
    """The median over rounds of the rate divided by the ceiling's; None without either."""
    if not gflop or not ceiling:
        return None
    return statistics.median(gflop / taken / rate for taken, rate in zip(seconds, ceiling, strict=True))


def disagreements(losses: Mapping[str, float], tolerance: float) -> tuple[str, ...]:
    """A line for each loss whose relative difference from the first exceeds `tolerance`; NaN always differs."""
    if not losses:
        return ()
    (first, expected), *others = losses.items()
    return tuple(
        f"the last loss of {name} is {loss:.6g}, of {first} {expected:.6g}"
        for name, loss in others
        if not abs(loss - expected) <= tolerance * abs(expected)
    )
