"""Seconds and memory of the training steps of several runtimes, in turn on the same windows; the sgemm rate."""

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
from phonograd.bench.flops import ceiling_flop, ceiling_shape, step_flop
from phonograd.bench.worker import Job
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.formats.manifest import MANIFEST, Manifest, open_artifacts
from phonograd.device_runtime.formats.model_config import LanguageModelConfig

SCHEMA_VERSION = 1
CEILING = Entry("sgemm", "phonograd.bench.peers.sgemm")
PAPER_EPOCH_STEPS = 20  # about 20 KB of text: 4,000 tokens in windows of 200

Say = Callable[[str], object]


@dataclass(frozen=True)
class EpochBenchConfig:
    """steps: measured rounds; warm_up: rounds before them; tolerance: relative, between float32 losses."""

    steps: int = 10
    warm_up: int = 2
    threads: int = 2
    tolerance: float = 1e-3


@dataclass(frozen=True)
class Measured:
    """One contestant's figures.

    output_words: words that the softmax runs over, fewer than the vocabulary with an output sample; gflops: GFLOP of a
    step per median second; fraction_of_sgemm: median over rounds of that rate divided by the ceiling's in the same
    round; ratio, ratio_least: seconds divided by the first contestant's in the same round, median and minimum over
    rounds; own_rss_bytes: peak memory minus the interpreter's before loading; last_loss: of the last step, as the
    manifest defines it, over the output words.
    """

    name: str
    output_words: int
    step_seconds: tuple[float, ...]
    median_seconds: float
    p10_seconds: float
    p90_seconds: float
    epoch_seconds: float
    tokens_per_second: float
    gflops: float
    fraction_of_sgemm: float
    ratio: float
    ratio_least: float
    peak_rss_bytes: int
    own_rss_bytes: int
    load_seconds: float
    last_loss: float
    about: Mapping[str, Any]


@dataclass(frozen=True)
class EpochBench:
    """The whole benchmark. disagreements: a line for each float32 contestant with another last loss."""

    kind: str
    schema_version: int
    environment: Environment
    threads: int
    manifest_sha256: str
    weights_sha256: str
    model: LanguageModelConfig
    minibatch: int
    bptt: int
    clip_norm: float | None
    step_gflop: float
    weight_bytes: int
    sgemm_shape: tuple[int, int, int]
    sgemm_gflops: float
    warm_up: int
    contestants: tuple[Measured, ...]
    left_out: Mapping[str, str]
    disagreements: tuple[str, ...]


def bench_epoch(folder: Path, entries: Sequence[Entry], config: EpochBenchConfig, say: Say = str) -> EpochBench:
    """Load all contestants, then run one step of each in every round.

    Raises BenchError if a contestant fails or none can run here, and what opening the artifacts raises.
    """
    artifacts = open_artifacts(folder)
    manifest = artifacts.manifest
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        np.save(place / "windows.npy", _windows(manifest, config))
        left_out, workers = {}, []
        for entry in (CEILING, *entries):
            say(f"loading {entry.name}")
            windows = str(place / "windows.npy")
            job = Job(entry.peer, str(folder.resolve()), windows, config.threads, entry.variant, entry.output_sample)
            worker = stack.enter_context(Worker(entry, job))
            worker.wait_until_loaded()
            if worker.left_out is None:
                workers.append(worker)
            else:
                left_out[entry.name] = worker.left_out
        if len(workers) < 2:
            raise BenchError(f"bench: no contestant can run here: {'; '.join(left_out.values()) or 'none was given'}")
        turns = _take_turns(workers, config, say)
    ceiling, *others = [turns[worker.entry.name] for worker in workers]
    ceiling_rates = [ceiling_flop(manifest) / turn.seconds / 1e9 for turn in ceiling]
    measured = tuple(
        _measured(worker, own, others[0], ceiling_rates, manifest)
        for worker, own in zip(workers[1:], others, strict=True)
    )
    return EpochBench(
        kind="epoch",
        schema_version=SCHEMA_VERSION,
        environment=this_environment(),
        threads=config.threads,
        manifest_sha256=sha256_of_file(folder / MANIFEST),
        weights_sha256=artifacts.weights_sha256,
        model=manifest.model,
        minibatch=manifest.training.minibatch,
        bptt=manifest.training.bptt,
        clip_norm=manifest.training.clip_norm,
        step_gflop=step_flop(manifest.model, manifest.training) / 1e9,
        weight_bytes=4 * manifest.model.parameters,
        sgemm_shape=ceiling_shape(manifest),
        sgemm_gflops=statistics.median(ceiling_rates),
        warm_up=config.warm_up,
        contestants=measured,
        left_out=left_out,
        disagreements=() if manifest.training.dropout else _disagreements(measured, entries, config.tolerance),
    )


def _disagreements(measured: Sequence[Measured], entries: Sequence[Entry], tolerance: float) -> tuple[str, ...]:
    """Of contestants in float32, those with the same output words among themselves.

    With dropout there are none to be told: every runtime draws its own masks.
    """
    reduced = {entry.name for entry in entries if entry.reduced}
    losses: dict[int, dict[str, float]] = {}
    for one in measured:
        if one.name not in reduced:
            losses.setdefault(one.output_words, {})[one.name] = one.last_loss
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
    worker: Worker, turns: Sequence[Turn], first: Sequence[Turn], ceiling_rates: Sequence[float], manifest: Manifest
) -> Measured:
    seconds = [turn.seconds for turn in turns]
    median = statistics.median(seconds)
    layer = worker.loaded["about"].get("output_layer")
    output_words = layer["words"] if layer else manifest.model.vocabulary
    work = step_flop(manifest.model, manifest.training, output_words) / 1e9
    ratios = [own / other.seconds for own, other in zip(seconds, first, strict=True)]
    p10, p90 = np.percentile(seconds, (10, 90))
    loss = turns[-1].loss
    if loss is None:
        raise BenchError(f"bench: {worker.entry.name} returned no loss, expected a number")
    return Measured(
        name=worker.entry.name,
        output_words=output_words,
        step_seconds=tuple(seconds),
        median_seconds=median,
        p10_seconds=float(p10),
        p90_seconds=float(p90),
        epoch_seconds=median * PAPER_EPOCH_STEPS,
        tokens_per_second=manifest.training.minibatch * manifest.training.bptt / median,
        gflops=work / median,
        fraction_of_sgemm=statistics.median(work / s / rate for s, rate in zip(seconds, ceiling_rates, strict=True)),
        ratio=statistics.median(ratios),
        ratio_least=min(ratios),
        peak_rss_bytes=turns[-1].peak_rss_bytes,
        own_rss_bytes=turns[-1].peak_rss_bytes - worker.loaded["baseline_rss_bytes"],
        load_seconds=worker.loaded["load_seconds"],
        last_loss=loss,
        about=worker.loaded["about"],
    )


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
