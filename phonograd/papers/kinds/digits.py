"""A model of digits, fine-tuned on nodes whose images have their pixels permuted (paper P, Table 3)."""

from functools import partial
from statistics import fmean

import numpy as np

from phonograd.device_runtime.base.documents import Positive
from phonograd.device_runtime.formats.tensor_file import save_tensors
from phonograd.export.perceptron import PerceptronConfig, first_weights, write_perceptron
from phonograd.papers.images.dataset import load_mnist, made_images
from phonograd.papers.images.node import Classifier, Data, FineTuning, accuracy, fine_tune, train
from phonograd.papers.run import Context, Outcome

_CLASSES = 10
_MEASURED = 10  # figures are means over the last rounds


class Settings(FineTuning, frozen=True, kw_only=True):
    """hidden: units of the hidden layers; pretraining: epochs of the general model, and its learning rate; made: images
    that a small run makes, made_pixels: of each.
    """

    hidden: tuple[Positive, ...]
    input_dropout: float
    hidden_dropout: float
    minibatch: Positive
    pretraining: Positive
    pretraining_rate: float
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
    general = context.work / "general.safetensors"

    def initial() -> dict[str, float]:
        context.progress(0, 1, "general model")
        first = context.work / "first.safetensors"
        save_tensors(first, first_weights(config, context.seed))
        rate, epochs = settings.pretraining_rate, settings.pretraining
        save_tensors(general, train(classifier, first, data.general, rate, epochs, context.seed).weights)
        return _figures(*(accuracy(classifier, general, images) for images in (data.general_test, data.nodes_test)))

    def tuned(row: str, rehearsal: bool) -> dict[str, float]:
        def measured(number: int) -> bool:
            context.progress(number, rounds, row)
            return number > rounds - _MEASURED

        job = classifier, general, data, settings, rehearsal, context.seed, context.folder(row), measured
        last = list(fine_tune(*job))
        figures = _figures(fmean(one.general for one in last), fmean(one.nodes for one in last))
        return figures | {"MB up in a round": last[-1].bytes_up / 1e6}

    rounds = len(settings.rates)
    rows = {"initial": context.kept("initial", initial)}
    for row, rehearsal in (("with rehearsal", True), ("without", False)):
        rows[row] = context.kept(row, partial(tuned, row, rehearsal))
    return Outcome(rows, {"rounds": rounds, "epochs of the general model": settings.pretraining})


def _data(settings: Settings, context: Context) -> Data:
    """The images; the seed draws the nodes' images and their pixels' order."""
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
    return Data(general, all_nodes.take(drawn).permuted(order), test, test.permuted(order))


def _figures(standard: float, shuffled: float) -> dict[str, float]:
    return {"standard accuracy, %": 100 * standard, "shuffled accuracy, %": 100 * shuffled}
