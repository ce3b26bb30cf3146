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


@dataclass(frozen=True)
class FineTuning:
    """Fine-tuning on nodes. nodes; images: of each; per_round: nodes that take part, drawn anew; rehearsal: each node
    also trains on as many images of the general kind, drawn anew each round.
    """

    nodes: int = 110
    images: int = 500
    per_round: int = 10
    phases: tuple[Phase, ...] = (Phase(500, 0.05), Phase(60, 0.005), Phase(90, 0.001))
    rehearsal: bool = True
    seed: int = 1


@dataclass(frozen=True)
class Kinds:
    """Images of the general kind and of the nodes' kind."""

    general: Images
    nodes: Images


@dataclass(frozen=True)
class Measured:
    """After a round: accuracy, 0 to 1, and the bytes that the nodes uploaded in it."""

    round: int
    general: float
    nodes: float
    bytes_up: int


def fine_tune(
    model: Classifier,
    weights: Path,
    general: Images,
    nodes: Images,
    tests: Kinds,
    settings: FineTuning,
    work: Path,
    measured_rounds: Callable[[int], bool],
) -> Iterator[Measured]:
    """Run all rounds from `weights`; yields what is measured after those that `measured_rounds` names.

    general: images to rehearse; nodes: the first nodes x images of them become the nodes'; tests: to measure accuracy
    on. work: a folder for updates and the last model. Raises TrainingError, StorageError.
    """
    if len(nodes) < settings.nodes * settings.images:
        raise TrainingError(f"{settings.nodes * settings.images} images of the nodes expected, found {len(nodes)}")
    random = np.random.default_rng(settings.seed)
    base = weights
    rates = [phase.learning_rate for phase in settings.phases for _ in range(phase.rounds)]
    for number, rate in enumerate(rates, 1):
        round_ = NodeRound(base, work, number)
        for node in random.choice(settings.nodes, settings.per_round, replace=False):
            images = _images_of(int(node), nodes, general, settings, random)
            trained = train(model, base, images, rate, 1, round_.seed(str(node)))
            round_.add(str(node), trained.weights, len(images))
        closed = round_.close()
        if base != weights:
            base.unlink()
        base = closed
        if measured_rounds(number):
            general_score, nodes_score = (accuracy(model, base, images) for images in (tests.general, tests.nodes))
            yield Measured(number, general_score, nodes_score, round_.nbytes)


def _images_of(node: int, nodes: Images, general: Images, settings: FineTuning, random: np.random.Generator) -> Images:
    own = nodes.take(np.arange(node * settings.images, (node + 1) * settings.images))
    if not settings.rehearsal:
        return own
    return own.and_also(general.take(random.choice(len(general), settings.images, replace=False)))
