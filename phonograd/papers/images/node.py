"""One node: trains a classifier of images on its own images through the native engine, and measures accuracy."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from phonograd.device_runtime.base.errors import TrainingError
from phonograd.device_runtime.engine.backend import BackendOptions
from phonograd.device_runtime.engine.graph import NativeGraph
from phonograd.device_runtime.formats.manifest import EVAL_MODEL, OPTIMIZER_MODEL, TRAINING_MODEL
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile
from phonograd.export.onnx_graph import LOGITS, LOSS
from phonograd.export.perceptron import IMAGES, LABELS
from phonograd.papers.images.dataset import Images


@dataclass(frozen=True)
class Classifier:
    """The graphs of `export.perceptron` in a folder. minibatch: images of a step; evaluated: of a run of evaluation."""

    folder: Path
    minibatch: int
    evaluated: int
    threads: int = 2


@dataclass(frozen=True)
class Trained:
    """What training left: the weights by name, and the mean loss of each epoch, nats an image."""

    weights: Mapping[str, Array]
    losses: tuple[float, ...]


def train(model: Classifier, weights: Path, images: Images, learning_rate: float, epochs: int, seed: int) -> Trained:
    """Train on all images by plain SGD, in a new random order each epoch.

    Images that do not fill the last minibatch are left out of that epoch. seed: of the order and of dropout.
    Raises TrainingError for a loss that is not finite, or too few images; WeightsError, ArtifactsError.
    """
    if len(images) < model.minibatch:
        raise TrainingError(f"{len(images)} images: expected at least a minibatch, {model.minibatch}")
    random = np.random.default_rng(seed)
    files = model.folder / TRAINING_MODEL, model.folder / OPTIMIZER_MODEL
    with NativeGraph(*files, weights, BackendOptions(threads=model.threads, seed=seed)) as graph:
        losses = tuple(_epoch(graph, model, images, learning_rate, random) for _ in range(epochs))
        with TensorFile(weights) as base:
            return Trained({name: graph.get(name) for name in base.specs}, losses)


def _epoch(
    graph: NativeGraph, model: Classifier, images: Images, learning_rate: float, random: np.random.Generator
) -> float:
    """One pass over the images; the mean loss."""
    steps = len(images) // model.minibatch
    order = random.permutation(len(images))[: steps * model.minibatch]
    total = 0.0
    for places in order.reshape(steps, model.minibatch):
        graph.set(IMAGES, images.pixels[places])
        graph.set(LABELS, images.labels[places])
        graph.run(learning_rate)
        total += float(graph.get(LOSS))
        if not np.isfinite(total):
            raise TrainingError(f"the loss is not finite at learning rate {learning_rate}; use a smaller one")
    return total / steps


def accuracy(model: Classifier, weights: Path, images: Images) -> float:
    """The share of images whose label has the largest logit. Raises WeightsError, ArtifactsError."""
    right = 0
    empty = np.zeros((model.evaluated, images.pixels.shape[1]), np.float32)
    with NativeGraph(
        model.folder / EVAL_MODEL, weights=weights, options=BackendOptions(threads=model.threads)
    ) as graph:
        for start in range(0, len(images), model.evaluated):
            pixels = images.pixels[start : start + model.evaluated]
            empty[: len(pixels)] = pixels
            graph.set(IMAGES, empty)
            graph.run()
            found = graph.get(LOGITS)[: len(pixels)].argmax(axis=1)
            right += int((found == images.labels[start : start + len(pixels)]).sum())
    return right / len(images)
