"""What a phone does: steps, an epoch, suggestions, codecs."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phonograd.bench.contestants import Entry, Worker, selected_entries, with_output_sample, worker_environment
from phonograd.bench.epoch import PAPER_EPOCH_STEPS, EpochBenchConfig, windows_of
from phonograd.bench.worker import Ids, Job
from phonograd.device_runtime.engine.backend import BackendOptions
from phonograd.device_runtime.engine.predictor import Predictor, write_prediction_weights
from phonograd.device_runtime.formats.manifest import PREDICTION, WEIGHTS, Artifacts
from phonograd.device_runtime.formats.tensor_file import TensorFile
from phonograd.device_runtime.training.round import Round, RoundSettings
from phonograd.device_runtime.update.codecs import CODECS
from phonograd.device_runtime.update.update_file import DecodedUpdate, UpdateFile, write_update

THREADS = EpochBenchConfig().threads
OUTPUT_SAMPLE = 2000
NATIVE = selected_entries(("native",), precisions=("fp32", "bf16"))
ENGINES = (*NATIVE, *with_output_sample(NATIVE[:1], OUTPUT_SAMPLE), *selected_entries(("ort", "torch"), ("lean",)))
STEPS, WARM_UP = 6, 1


@pytest.fixture(scope="session")
def windows(artifacts: Artifacts) -> Ids:
    """An epoch of the paper's size."""
    return windows_of(artifacts.manifest, PAPER_EPOCH_STEPS)


@pytest.mark.parametrize("entry", ENGINES, ids=lambda entry: entry.name)
def bench_step(benchmark: Any, artifacts: Artifacts, windows: Ids, place: Path, entry: Entry) -> None:
    """One training step, in a process that waits for it, so that no engine's threads or memory disturb another's."""
    path = place / "windows.npy"
    np.save(path, windows)
    job = Job(entry.peer, str(artifacts.folder), str(path), THREADS, entry.variant, entry.output_sample)
    with Worker(entry, job, worker_environment(THREADS)) as worker:
        if reason := worker.left_out():
            pytest.skip(f"{entry.name}: {reason}")
        numbers = itertools.cycle(range(len(windows)))
        benchmark.pedantic(lambda: worker.turn(next(numbers)), rounds=STEPS, warmup_rounds=WARM_UP)


def bench_epoch(benchmark: Any, artifacts: Artifacts, windows: Ids) -> None:
    """A pass over an epoch of ids, from opening the model on."""
    settings = RoundSettings(
        folder=artifacts.folder, stream=windows[:, 0].reshape(-1), seed=0, options=BackendOptions(THREADS)
    )

    def train() -> None:
        with Round(settings) as round_:
            round_.train()

    benchmark.pedantic(train, rounds=3)


@pytest.mark.parametrize("weights", ["float32", "int8"])
def bench_suggestion(benchmark: Any, artifacts: Artifacts, place: Path, weights: str) -> None:
    """Feed a typed word, and take suggestions for the next one."""
    path = artifacts.path(WEIGHTS)
    if weights == "int8":
        path = place / PREDICTION
        write_prediction_weights(artifacts.path(WEIGHTS), path)
    words = itertools.cycle(f"w{number}" for number in range(100))
    with Predictor(artifacts, path, BackendOptions(THREADS)) as predictor:

        def type_word() -> None:
            predictor.feed(next(words))
            predictor.suggest()

        benchmark(type_word)


@pytest.mark.parametrize("codec", CODECS)
def bench_encode(benchmark: Any, artifacts: Artifacts, updates: Mapping[str, Path], place: Path, codec: str) -> None:
    """Write an update's file from trained weights."""
    with TensorFile(artifacts.path(WEIGHTS)) as base:
        with UpdateFile(updates["full-f32"]) as whole:
            trained = whole.weights(base)
        with UpdateFile(updates[codec]) as update:
            info = update.info
        benchmark(write_update, place / "update", base, trained, info)


@pytest.mark.parametrize("codec", CODECS)
def bench_decode(benchmark: Any, artifacts: Artifacts, updates: Mapping[str, Path], codec: str) -> None:
    """Read all weights of an update's file, checked."""

    def decode() -> None:
        with UpdateFile(updates[codec]) as update:
            update.check(base, artifacts.weights_sha256)
            with DecodedUpdate(update, base) as decoded:
                for spec in base.specs.values():
                    for _ in decoded.tiles(spec):
                        pass

    with TensorFile(artifacts.path(WEIGHTS)) as base:
        benchmark(decode)
