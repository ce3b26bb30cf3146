"""Rounds of nodes that fine-tune a classifier on images of a new kind, with or without rehearsal (P, Table 3)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from phonograd.device_runtime.base.documents import Positive, Record
from phonograd.device_runtime.base.errors import TrainingError
from phonograd.papers.images.dataset import Images
from phonograd.papers.images.node import Classifier, accuracy, train
from phonograd.papers.node_round import NodeRound


class Phase(Record, frozen=True):
    """Rounds with one learning rate."""

    rounds: Positive
    learning_rate: float


class FineTuning(Record, frozen=True):
    """Fine-tuning on nodes. images: of each node; per_round: nodes that take part, drawn anew."""

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


@dataclass(frozen=True)
class Measured:
    """After a round: accuracy, 0 to 1, and the bytes that the nodes uploaded in it."""

    general: float
    nodes: float
    bytes_up: int


def fine_tune(
    model: Classifier,
    weights: Path,
    data: Data,
    settings: FineTuning,
    rehearsal: bool,
    seed: int,
    work: Path,
    measured_rounds: Callable[[int], bool],
) -> Iterator[Measured]:
    """Run all rounds from `weights`; yields what is measured after those that `measured_rounds` names.

    The first nodes x images of data.nodes become the nodes'. rehearsal: each node also trains on as many general
    images, drawn anew each round. work: a folder for updates and the last model. Raises TrainingError, StorageError.
    """
    count = settings.images
    if len(data.nodes) < settings.nodes * count:
        raise TrainingError(f"{settings.nodes * count} images of the nodes expected, found {len(data.nodes)}")
    random = np.random.default_rng(seed)
    base = weights
    for number, rate in enumerate(settings.rates, 1):
        round_ = NodeRound(base, work, number)
        for node in random.choice(settings.nodes, settings.per_round, replace=False):
            images = data.nodes.take(np.arange(node * count, (node + 1) * count))
            if rehearsal:
                images = images.and_also(data.general.take(random.choice(len(data.general), count, replace=False)))
            trained = train(model, base, images, rate, 1, round_.seed(str(node)))
            round_.add(str(node), trained.weights, len(images))
        closed = round_.close()
        if base != weights:
            base.unlink()
        base = closed
        if measured_rounds(number):
            general, nodes = (accuracy(model, base, images) for images in (data.general_test, data.nodes_test))
            yield Measured(general, nodes, round_.nbytes)
