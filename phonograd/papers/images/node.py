"""Nodes that train a classifier of images through the native engine, with or without rehearsal (P, Table 3)."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from phonograd.device_runtime.base.documents import Positive, Record
from phonograd.device_runtime.base.errors import TrainingError
from phonograd.device_runtime.engine.backend import BackendOptions
from phonograd.device_runtime.engine.graph import NativeGraph
from phonograd.device_runtime.formats.manifest import EVAL_MODEL, OPTIMIZER_MODEL, TRAINING_MODEL
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile
from phonograd.export.onnx_graph import LOGITS, LOSS
from phonograd.export.perceptron import IMAGES, LABELS
from phonograd.papers.images.dataset import Images
from phonograd.papers.node_round import NodeRound


@dataclass(frozen=True)
class Classifier:
    """The graphs of `export.perceptron` in a folder. minibatch: images of a step; evaluated: of a run of evaluation."""

    folder: Path
    minibatch: int
    evaluated: int
    threads: int = 2


def train(model: Classifier, weights: Path, images: Images, learning_rate: float, seed: int) -> dict[str, Array]:
    """Train on all images once by plain SGD, in random order; returns the new weights by name.

    Images that do not fill the last minibatch are left out. seed: of the order and of dropout. Raises TrainingError for
    a loss that is not finite, or too few images; WeightsError, ArtifactsError.
    """
    steps = images.minibatches(model.minibatch)
    order = np.random.default_rng(seed).permutation(len(images))[: steps * model.minibatch]
    files = model.folder / TRAINING_MODEL, model.folder / OPTIMIZER_MODEL
    with NativeGraph(*files, weights, BackendOptions(threads=model.threads, seed=seed)) as graph:
        for places in order.reshape(steps, model.minibatch):
            graph.set(IMAGES, images.pixels[places])
            graph.set(LABELS, images.labels[places])
            graph.run(learning_rate)
            if not np.isfinite(graph.get(LOSS)):
                raise TrainingError(f"the loss is not finite at learning rate {learning_rate}; use a smaller one")
        with TensorFile(weights) as base:
            return {name: graph.get(name) for name in base.specs}


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
            digits = graph.get(LOGITS)[: len(pixels)].argmax(axis=1)
            right += int((digits == images.labels[start : start + len(pixels)]).sum())
    return right / len(images)


# Trains a round's nodes: (the model's file, a folder, the round's number, images by node, learning rate) to the file of
# the mean of their weights, folder/NUMBER.safetensors.
TrainRound: TypeAlias = Callable[[Path, Path, int, Mapping[str, Images], float], Path]


def in_turn(model: Classifier, base: Path, work: Path, number: int, nodes: Mapping[str, Images], rate: float) -> Path:
    """A round of the native engine, whose updates the server's aggregation averages. Raises as `train`."""
    round_ = NodeRound(base, work, number)
    for node, images in nodes.items():
        round_.add(node, train(model, base, images, rate, round_.seed(node)), len(images))
    return round_.close()


class Phase(Record, frozen=True):
    """Rounds with one learning rate."""

    rounds: Positive
    learning_rate: float


class FineTuning(Record, frozen=True):
    """Fine-tuning on nodes. images: of each node; per_round: nodes drawn each time."""

    nodes: Positive
    images: Positive
    per_round: Positive
    phases: tuple[Phase, ...]

    @property
    def rates(self) -> list[float]:
        """The learning rate of each round."""
        return [phase.learning_rate for phase in self.phases for _ in range(phase.rounds)]


@dataclass(frozen=True)
class Data:
    """general: to train the general model on and to rehearse; nodes: what the nodes have; and tests of both kinds."""

    general: Images
    nodes: Images
    general_test: Images
    nodes_test: Images


def fine_tune(
    train_round: TrainRound, weights: Path, data: Data, settings: FineTuning, rehearsal: bool, seed: int, work: Path
) -> Iterator[int]:
    """Run all rounds from `weights`; yields each one's number when its model is work/NUMBER.safetensors.

    The first nodes x images of data.nodes become the nodes'. rehearsal: each node also trains on as many general
    images, new ones each round. work: a folder, of which the next round removes the model; the same call resumes from
    the last one, whose number it yields again. What is drawn follows from seed and round. Raises TrainingError,
    StorageError.
    """
    count = settings.images
    if len(data.nodes) < settings.nodes * count:
        raise TrainingError(f"{settings.nodes * count} images of the nodes expected, found {len(data.nodes)}")
    done = max((int(path.stem) for path in work.glob("[0-9]*.safetensors")), default=0)
    base = work / f"{done}.safetensors" if done else weights
    if done:
        yield done
    for number, rate in enumerate(settings.rates[done:], done + 1):
        random = np.random.default_rng([seed, number])
        nodes = {}
        for node in random.choice(settings.nodes, settings.per_round, replace=False):
            images = data.nodes.take(np.arange(node * count, (node + 1) * count))
            if rehearsal:
                images = images.and_also(data.general.take(random.choice(len(data.general), count, replace=False)))
            nodes[str(node)] = images
        base = train_round(base, work, number, nodes, rate)
        for path in work.glob("[0-9]*.safetensors"):
            if path != base:
                path.unlink()
        yield number
