"""Seconds and memory of training steps at full size, beside the machine's own sgemm rate."""

import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.measuring import in_fresh_process, peak_rss_bytes
from device_runtime.backends import load_backend
from device_runtime.backends.base import BackendOptions
from device_runtime.manifest import open_artifacts
from device_runtime.windows import Window


@dataclass(frozen=True)
class EpochBenchConfig:
    """Steps measured after those that warm up, and CPU threads."""

    steps: int = 10
    warm_up: int = 2
    threads: int = 2
    paper_epoch_steps: int = 20  # about 20 KB of text: 4,000 tokens in windows of 200


@dataclass(frozen=True)
class EpochBench:
    """Seconds a step (of B·T tokens); seconds of an epoch of 20 such steps; peak memory of the process.

    sgemm_gflops: what NumPy reaches on the output layer's product [B·T, H] x [H, V], measured between the steps;
    step_gflops: the multiply-adds of a step, counted twice, per second; its ratio to the former is the fraction of the
    machine's ceiling that is used.
    """

    backend: str
    threads: int
    step_seconds: tuple[float, ...]
    median_seconds: float
    epoch_seconds: float
    tokens_per_second: float
    peak_rss_bytes: int
    sgemm_gflops: float
    step_gflops: float


def bench_epoch(artifacts: Path, backend: str, config: EpochBenchConfig) -> EpochBench:
    """Measure a backend on random windows, in a process of its own. Raises what loading the artifacts raises."""
    return in_fresh_process(_measure, artifacts, backend, config)


def _measure(folder: Path, backend: str, config: EpochBenchConfig) -> EpochBench:
    artifacts = open_artifacts(folder)
    model, training = artifacts.manifest.model, artifacts.manifest.training
    engine = load_backend(backend, artifacts, None, BackendOptions(config.threads))
    random = np.random.default_rng(0)
    shape = (training.bptt, training.minibatch)
    tokens = training.bptt * training.minibatch
    seconds, sgemm = [], []
    for step in range(config.warm_up + config.steps):
        window = Window(*(random.integers(0, model.vocabulary, shape) for _ in range(2)))
        began = time.perf_counter()
        engine.step(window, training.learning_rate)
        took = time.perf_counter() - began
        if step >= config.warm_up:
            seconds.append(took)
    peak = peak_rss_bytes()
    hidden = random.normal(size=(tokens, model.hidden)).astype(np.float32)
    decoder = random.normal(size=(model.hidden, model.vocabulary)).astype(np.float32)
    for _ in range(config.warm_up + config.steps):
        began = time.perf_counter()
        hidden @ decoder
        sgemm.append(2 * tokens * decoder.size / (time.perf_counter() - began) / 1e9)
    engine.close()
    median = statistics.median(seconds)
    # Every weight but the embedding's takes part in one multiply-add per token, three times with both gradients.
    weights = model.parameters - model.vocabulary * model.embedding * (not model.tied)
    return EpochBench(
        backend=backend,
        threads=config.threads,
        step_seconds=tuple(seconds),
        median_seconds=median,
        epoch_seconds=median * config.paper_epoch_steps,
        tokens_per_second=tokens / median,
        peak_rss_bytes=peak,
        sgemm_gflops=statistics.median(sgemm[config.warm_up :]),
        step_gflops=6 * tokens * weights / median / 1e9,
    )
