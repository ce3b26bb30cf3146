"""Whether runtimes compute the same training: the same steps from the same weights by each, every tensor compared.

ONNX Runtime clips by a norm that it sums in float32; at the paper's size that is 1e-4 off, and so is all that it then
trains. So it is held to the tolerance only where nothing is clipped; torch, as a peer here, takes the norm in float64.
"""

import itertools
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from phonograd.bench.contestants import Answers, BenchError, Entry, Say, Worker, worker_environment
from phonograd.bench.markdown import Column, Table, figure, model_name, text
from phonograd.bench.results import Document, result_of
from phonograd.bench.worker import Job
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.formats.manifest import MANIFEST, WEIGHTS, Manifest, open_artifacts
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile

SCHEMA_VERSION = 1
FLOAT32_NORM = "ort"
BETWEEN = " : "


@dataclass(frozen=True)
class ParityConfig:
    """Steps trained, CPU threads, and how far losses (relative) and tensors (Frobenius) may lie apart.

    Random weights at the paper's rate leap soon after these steps, and a leap makes ten times as much of any rounding.
    """

    steps: int = 10
    threads: int = 2
    tolerance: float = 1e-5


@dataclass(frozen=True)
class _Trained:
    losses: Sequence[Any]
    about: Mapping[str, Any]
    weights: Path


def bench_parity(folder: Path, entries: Sequence[Entry], config: ParityConfig, say: Say = str) -> dict[str, Any]:
    """Train by each, one after the other in processes of their own, then compare all pairs.

    The result has of each of the `tensors`, after the last step, how much it `moved` by the first runtime, relative,
    and `errors` by pair, relative; `loss_errors` by pair, the largest of any step; `held`, the pairs that the tolerance
    is for; and in `differences` a line for each error of those that is past it. output_sample: words drawn beside those
    of the windows, None for the full softmax.

    Raises BenchError when a loss is not finite, fewer than two can run here, or the artifacts have dropout, and what
    opening the artifacts raises.
    """
    artifacts = open_artifacts(folder)
    manifest = artifacts.manifest
    training = manifest.training
    if training.dropout:
        raise BenchError(
            f"bench: {folder}: dropout 0 expected: every runtime draws masks of its own; export without it"
        )
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        windows = place / "windows.npy"
        np.save(windows, _windows(manifest, config.steps))
        trained: dict[str, _Trained] = {}
        left_out: dict[str, str] = {}
        for entry in entries:
            say(f"{entry.name}: {config.steps} steps")
            weights, sample = place / f"{len(trained)}.safetensors", entry.output_sample
            work = (entry.peer, str(folder.resolve()), str(windows), config.threads, entry.variant, sample)
            with Worker(entry, Job(*work, weights=str(weights)), worker_environment(config.threads)) as worker:
                if reason := worker.left_out():
                    left_out[entry.name] = reason
                    continue
                losses = [worker.turn(step).loss for step in range(config.steps)]
                worker.end()
            if not all(loss is not None and math.isfinite(loss) for loss in losses):
                raise BenchError(f"bench: {entry.name}: a loss is not finite; the learning rate may be too high")
            trained[entry.name] = _Trained(losses, worker.loaded["about"], weights)
        if len(trained) < 2:
            raise BenchError(f"bench: two runtimes are needed; {'; '.join(left_out.values()) or 'one was named'}")
        say("comparing")
        tensors = _compare_runs(artifacts.path(WEIGHTS), trained)
    loss_errors = {
        pair: max(abs(a - b) / abs(b) for a, b in zip(one.losses, other.losses, strict=True))
        for pair, one, other in _pairs(trained)
    }
    clips = training.clip_norm is not None
    held = [pair for pair in loss_errors if not (clips and FLOAT32_NORM in pair.split(BETWEEN))]
    return result_of(
        "parity",
        SCHEMA_VERSION,
        threads=config.threads,
        manifest_sha256=sha256_of_file(folder / MANIFEST),
        weights_sha256=artifacts.weights_sha256,
        model=manifest.model,
        output_sample=entries[0].output_sample,
        minibatch=training.minibatch,
        bptt=training.bptt,
        clip_norm=training.clip_norm,
        learning_rate=training.learning_rate,
        steps=config.steps,
        tolerance=config.tolerance,
        versions={runtime: one.about["versions"] for runtime, one in trained.items()},
        left_out=left_out,
        losses={runtime: one.losses for runtime, one in trained.items()},
        held=held,
        loss_errors=loss_errors,
        tensors=tensors,
        differences=[
            f"{what} of {pair} differ by {error:.2g}"
            for what, errors in (*((one["tensor"], one["errors"]) for one in tensors), ("losses", loss_errors))
            for pair, error in errors.items()
            if pair in held and not error <= config.tolerance
        ],
    )


def _windows(manifest: Manifest, steps: int) -> Array:
    """[steps, 2, T, B] ids, most of them of the first words, as in a text: rows of the embedding move several times."""
    training = manifest.training
    uniform = np.random.default_rng(0).random((steps, 2, training.bptt, training.minibatch))
    return (uniform**4 * manifest.model.vocabulary).astype(np.int64)


def _pairs(trained: Mapping[str, _Trained]) -> list[tuple[str, _Trained, _Trained]]:
    pairs = itertools.combinations(trained.items(), 2)
    return [(f"{name}{BETWEEN}{other_name}", one, other) for (name, one), (other_name, other) in pairs]


def _compare_runs(first: Path, trained: Mapping[str, _Trained]) -> list[Answers]:
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
        {
            "tensor": name,
            "moved": _relative(read(reference.weights, name), read(first, name)),
            "errors": {
                pair: _relative(read(one.weights, name), read(other.weights, name))
                for pair, one, other in _pairs(trained)
            },
        }
        for name in names
    ]


def _relative(values: Array, expected: Array) -> float:
    """Frobenius norm of the difference by that of `expected`; by 1 if that is 0."""
    wide = expected.astype(np.float64)  # squares of weights that diverged are beyond float32
    return float(np.linalg.norm(values - wide) / (np.linalg.norm(wide) or 1))


def section(document: Document) -> Iterator[str | Table]:
    """See phonograd.bench.results."""
    clip = "no clipping" if document["clip_norm"] is None else f"clip norm {document['clip_norm']:g}"
    yield f"Parity: {model_name(document['model'])}"
    yield (
        f"Each runtime trains the same {document['steps']} steps of {document['bptt']} x {document['minibatch']} "
        f"tokens from the same weights, learning rate {document['learning_rate']:g}, {clip}. Relative Frobenius "
        f"errors of the trained tensors; at most {document['tolerance']:g} for {', '.join(document['held'])}. Moved: "
        "by how much training changed the tensor. With clipped gradients ort may differ more, because it sums their "
        "norm in float32."
    )

    def errors(pair: str) -> Column:
        return Column(lambda one: one["errors"][pair], ".1e")

    pairs = {pair: errors(pair) for pair in document["loss_errors"]}
    losses = {"tensor": "losses, the worst step", "errors": document["loss_errors"]}
    title = f"Relative errors after {document['steps']} steps of {document['minibatch'] * document['bptt']} tokens"
    columns = {"tensor": text("tensor"), "moved": figure("moved", ".1e"), **pairs}
    yield Table(title, columns, [*document["tensors"], losses])
