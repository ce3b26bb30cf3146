"""Whether runtimes compute the same training: the same steps from the same weights by each, every tensor compared.

ONNX Runtime clips by a norm that it sums in float32; at the paper's size that is 1e-4 off, and so is all that it then
trains. So it is held to the tolerance only where nothing is clipped; torch, as a peer here, takes the norm in float64.
"""

import importlib
import itertools
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from phonograd.bench.contestants import BenchError, Entry
from phonograd.bench.environment import Environment, this_environment
from phonograd.bench.measuring import in_fresh_process
from phonograd.bench.worker import Job, UnavailableError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.formats.manifest import MANIFEST, WEIGHTS, Manifest, open_artifacts
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, save_tensors

SCHEMA_VERSION = 1
FLOAT32_NORM = "ort"
BETWEEN = " : "

Say = Callable[[str], object]


@dataclass(frozen=True)
class ParityConfig:
    """Steps trained, CPU threads, and how far losses (relative) and tensors (Frobenius) may lie apart.

    Random weights at the paper's rate leap soon after these steps, and a leap makes ten times as much of any rounding.
    """

    steps: int = 10
    threads: int = 2
    tolerance: float = 1e-5


@dataclass(frozen=True)
class TensorParity:
    """One tensor after the last step. moved: its change by the first runtime, relative; errors: by pair, relative."""

    tensor: str
    moved: float
    errors: Mapping[str, float]


@dataclass(frozen=True)
class Parity:
    """The whole comparison, by pairs of runtimes.

    output_sample: words drawn beside those of the windows, None for the full softmax; held: the pairs that the
    tolerance is for; loss_errors: the largest of any step; differences: a line for each error of those that is past the
    tolerance.
    """

    kind: str
    schema_version: int
    environment: Environment
    threads: int
    manifest_sha256: str
    weights_sha256: str
    model: LanguageModelConfig
    output_sample: int | None
    minibatch: int
    bptt: int
    clip_norm: float | None
    learning_rate: float
    steps: int
    tolerance: float
    versions: Mapping[str, Any]
    left_out: Mapping[str, str]
    losses: Mapping[str, tuple[float, ...]]
    held: tuple[str, ...]
    loss_errors: Mapping[str, float]
    tensors: tuple[TensorParity, ...]
    differences: tuple[str, ...]


@dataclass(frozen=True)
class _Trained:
    """What a runtime's process leaves: losses, what it says of itself, and its weights in a file."""

    losses: tuple[float, ...]
    about: Mapping[str, Any]
    weights: Path


def bench_parity(folder: Path, entries: Sequence[Entry], config: ParityConfig, say: Say = str) -> Parity:
    """Train by each, one after the other in processes of their own, then compare all pairs.

    Raises BenchError when a loss is not finite, fewer than two can run here, or the artifacts have dropout, and what
    opening the artifacts and loading a runtime raises.
    """
    artifacts = open_artifacts(folder)
    manifest = artifacts.manifest
    if manifest.training.dropout:
        raise BenchError(
            f"bench: {folder}: dropout 0 expected: every runtime draws masks of its own; export without it"
        )
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        np.save(place / "windows.npy", _windows(manifest, config.steps))
        trained: dict[str, _Trained] = {}
        left_out: dict[str, str] = {}
        for entry in entries:
            say(f"{entry.name}: {config.steps} steps")
            windows = str(place / "windows.npy")
            job = Job(entry.peer, str(folder.resolve()), windows, config.threads, entry.variant, entry.output_sample)
            try:
                trained[entry.name] = in_fresh_process(_train, job, place / f"{len(trained)}.safetensors")
            except (ImportError, UnavailableError) as error:
                left_out[entry.name] = str(error)
        if len(trained) < 2:
            raise BenchError(f"bench: two runtimes are needed; {'; '.join(left_out.values()) or 'one was named'}")
        for runtime, one in trained.items():
            if not all(map(math.isfinite, one.losses)):
                raise BenchError(f"bench: {runtime}: a loss is not finite; the learning rate may be too high")
        say("comparing")
        tensors = tuple(_compared(artifacts.path(WEIGHTS), trained))
    loss_errors = {
        pair: max(abs(a - b) / abs(b) for a, b in zip(one.losses, other.losses, strict=True))
        for pair, one, other in _pairs(trained)
    }
    clips = manifest.training.clip_norm is not None
    held = tuple(pair for pair in loss_errors if not (clips and FLOAT32_NORM in pair.split(BETWEEN)))
    return Parity(
        kind="parity",
        schema_version=SCHEMA_VERSION,
        environment=this_environment(),
        threads=config.threads,
        manifest_sha256=sha256_of_file(folder / MANIFEST),
        weights_sha256=artifacts.weights_sha256,
        model=manifest.model,
        output_sample=entries[0].output_sample,
        minibatch=manifest.training.minibatch,
        bptt=manifest.training.bptt,
        clip_norm=manifest.training.clip_norm,
        learning_rate=manifest.training.learning_rate,
        steps=config.steps,
        tolerance=config.tolerance,
        versions={runtime: one.about["versions"] for runtime, one in trained.items()},
        left_out=left_out,
        losses={runtime: one.losses for runtime, one in trained.items()},
        held=held,
        loss_errors=loss_errors,
        tensors=tensors,
        differences=tuple(
            f"{what} of {pair} differ by {error:.2g}"
            for what, errors in (*((one.tensor, one.errors) for one in tensors), ("losses", loss_errors))
            for pair, error in errors.items()
            if pair in held and not error <= config.tolerance
        ),
    )


def _windows(manifest: Manifest, steps: int) -> Array:
    """[steps, 2, T, B] ids, most of them of the first words, as in a text: rows of the embedding move several times."""
    training = manifest.training
    uniform = np.random.default_rng(0).random((steps, 2, training.bptt, training.minibatch))
    return (uniform**4 * manifest.model.vocabulary).astype(np.int64)


def _train(job: Job, out: Path) -> _Trained:
    contestant = importlib.import_module(job.peer).load(job)
    losses = tuple(float(contestant.step(tokens, targets)) for tokens, targets in np.load(job.windows))
    save_tensors(out, contestant.weights())
    return _Trained(losses, contestant.about, out)


def _pairs(trained: Mapping[str, _Trained]) -> list[tuple[str, _Trained, _Trained]]:
    pairs = itertools.combinations(trained.items(), 2)
    return [(f"{name}{BETWEEN}{other_name}", one, other) for (name, one), (other_name, other) in pairs]


def _compared(first: Path, trained: Mapping[str, _Trained]) -> list[TensorParity]:
    """One tensor in memory at a time, of two runtimes. Raises BenchError for a weight that is not finite."""

    def read(path: Path, tensor: str) -> Array:
        with TensorFile(path) as file:
            values = file.read(tensor)
        if not np.isfinite(values).all():
            raise BenchError(f"bench: {tensor}: a weight is not finite; the learning rate may be too high")
        return values

    with TensorFile(first) as file:
        names = list(file.specs)
    reference = next(iter(trained.values()))
    return [
        TensorParity(
            tensor=name,
            moved=_relative(read(reference.weights, name), read(first, name)),
            errors={
                pair: _relative(read(one.weights, name), read(other.weights, name))
                for pair, one, other in _pairs(trained)
            },
        )
        for name in names
    ]


def _relative(found: Array, expected: Array) -> float:
    """Frobenius norm of the difference by that of `expected`; by 1 if that is 0."""
    wide = expected.astype(np.float64)  # squares of weights that diverged are beyond float32
    return float(np.linalg.norm(found - wide) / (np.linalg.norm(wide) or 1))
