"""A model of digits, fine-tuned on nodes whose images have their pixels permuted (paper P, Table 3)."""

from functools import partial
from pathlib import Path
from statistics import fmean

import numpy as np

from phonograd.device_runtime.base.documents import Positive
from phonograd.device_runtime.formats.tensor_file import save_tensors
from phonograd.export.perceptron import PerceptronConfig, first_weights, write_perceptron
from phonograd.papers.images.dataset import load_mnist, made_images
from phonograd.papers.images.node import Classifier, Data, FineTuning, TrainRound, accuracy, fine_tune, in_turn
from phonograd.papers.images.pretrain import Pretraining, pretrain
from phonograd.papers.images.together import together
from phonograd.papers.run import Context, Outcome

_CLASSES = 10
_MEASURED = 10  # figures are means over the last rounds


class Settings(FineTuning, frozen=True, kw_only=True):
    """hidden: units of the hidden layers; pretraining: of the general model; every: rounds between points of the
    curves; together: a round's nodes train in torch as one batch, else in turn by the native engine; made: images that
    a small run makes, made_pixels: of each.
    """

    hidden: tuple[Positive, ...]
    input_dropout: float
    hidden_dropout: float
    minibatch: Positive
    pretraining: tuple[Pretraining, ...]
    every: Positive
    together: bool = False
    made: Positive = 1
    made_pixels: Positive = 1


def run(settings: Settings, context: Context) -> Outcome:
    """Train the general model, then fine-tune it with and without rehearsal."""
    data = _data(settings, context)
    sizes = (data.general.pixels.shape[1], *settings.hidden, _CLASSES)
    config = PerceptronConfig(sizes, settings.input_dropout, settings.hidden_dropout)
    evaluated = min(500, len(data.general_test))
    classifier = Classifier(context.work / "graphs", settings.minibatch, evaluated, context.workers)
    write_perceptron(classifier.folder, config, classifier.minibatch, classifier.evaluated)
    train_round: TrainRound = partial(in_turn, classifier)
    if settings.together:
        train_round = partial(together, config, settings.minibatch)
    general = context.work / "general.safetensors"

    def figures(model: Path) -> dict[str, float]:
        of = (("standard", data.general_test), ("shuffled", data.nodes_test))
        return {f"{kind} accuracy, %": 100 * accuracy(classifier, model, images) for kind, images in of}

    def initial() -> dict[str, float]:
        def progress(done: int, epochs: int) -> None:
            context.progress(done, epochs, "epochs of the general model")

        first, state = first_weights(config, context.seed), context.work / "pretraining.pt"
        job = config, first, data.general, settings.pretraining, settings.minibatch, context.seed, context.workers
        save_tensors(general, pretrain(*job, state, progress))
        return figures(general)

    def tune(row: str, rehearsal: bool) -> list[dict[str, float]]:
        work = context.folder(row)

        def measure(number: int) -> dict[str, float]:
            return context.measure_once(_point(row, number), partial(figures, work / f"{number}.safetensors"))

        for number in fine_tune(train_round, general, data, settings, rehearsal, context.seed, work):
            context.progress(number, rounds, row)
            if number in shown:
                measure(number)
        return [measure(number) for number in shown]  # kept, also by an earlier run

    rounds = len(settings.rates)
    shown = [number for number in range(1, rounds + 1) if number % settings.every == 0 or number > rounds - _MEASURED]
    rows = {"initial": context.measure_once("initial", initial)}
    curves: dict[str, dict[str, float]] = {}
    for row, rehearsal in (("with rehearsal", True), ("without", False)):
        points = tune(row, rehearsal)
        rows[row] = {name: fmean(point[name] for point in points[-_MEASURED:]) for name in points[0]}
        curves |= {
            _point(row, number): point
            for number, point in zip(shown, points, strict=True)
            if number % settings.every == 0
        }
    return Outcome(rows | curves, {"rounds": rounds, "MB of the model": general.stat().st_size / 1e6})


def _point(row: str, number: int) -> str:
    return f"{row}, round {number}"


def _data(settings: Settings, context: Context) -> Data:
    if context.small is None:
        folder = context.input("mnist")
        general, test = load_mnist(folder, "train"), load_mnist(folder, "t10k")
        all_nodes = general
    else:
        sets = (made_images(settings.made, _CLASSES, settings.made_pixels, 1, shown) for shown in range(3))
        general, test, all_nodes = sets
    random = np.random.default_rng(context.seed)
    order = random.permutation(general.pixels.shape[1])
    drawn = random.permutation(len(all_nodes))[: settings.nodes * settings.images]
    return Data(general, all_nodes.take(drawn).permute(order), test, test.permute(order))
