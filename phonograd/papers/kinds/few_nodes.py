"""A language model from scratch on a few nodes: averaging after whole epochs against DGC (paper P, Table 5)."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

import phonograd
from phonograd.device_runtime.base.documents import Positive, Record
from phonograd.device_runtime.formats.manifest import VOCABULARY, WEIGHTS
from phonograd.device_runtime.text.messages import read_messages
from phonograd.papers.few_nodes.averaging import Averaging
from phonograd.papers.few_nodes.dgc import Compressed
from phonograd.papers.few_nodes.plateau import Plateau, Reached, TrainPass, train_to_plateau
from phonograd.papers.run import Context, Outcome


class Settings(Record, frozen=True):
    """vocabulary: words, from the training text; units: of the embedding and of each layer; tokens: of the training
    text that are used; averaging, compressed: until when rounds of averaging and epochs of DGC go on.
    """

    vocabulary: Positive
    units: Positive
    layers: Positive
    minibatch: Positive
    bptt: Positive
    tokens: Positive
    nodes: Positive
    averaging: Plateau
    compressed: Plateau


def run(settings: Settings, context: Context) -> Outcome:
    """Train both ways from the same weights on the same parts of the text, to a plateau of the validation text."""
    artifacts = _artifacts(settings, context)
    vocabulary = phonograd.Vocabulary.load(artifacts.path(VOCABULARY))
    stream = vocabulary.encode(read_messages(context.input("training-text")))[: settings.tokens]
    streams = np.array_split(stream, settings.nodes)
    first = artifacts.path(WEIGHTS)

    averaging = Averaging(artifacts, streams, context.folder("averaging"), context.workers)
    compressed = Compressed(artifacts.manifest, streams, context.folder("DGC"), context.workers)
    measures: dict[str, Callable[[], dict[str, float]]] = {
        "initial": lambda: {"perplexity": _perplexity(artifacts, first, "test-text", context)},
        "averaging": partial(_train_until_plateau, "averaging", settings.averaging, artifacts, averaging, context),
        "DGC": partial(_train_until_plateau, "DGC", settings.compressed, artifacts, compressed, context),
    }
    rows = {row: context.measure_once(row, measure) for row, measure in measures.items()}
    return Outcome(rows, {"tokens": len(stream), "MB of the weights": first.stat().st_size / 1e6})


def _artifacts(settings: Settings, context: Context) -> phonograd.Artifacts:
    folder = context.work / "artifacts"
    if not folder.exists():
        words = phonograd.build_vocabulary([context.input("training-text")], settings.vocabulary)
        units = settings.units
        shape = phonograd.LanguageModelConfig("lstm", len(words), units, units, settings.layers, tied=True)
        training = phonograd.TrainingConfig(minibatch=settings.minibatch, bptt=settings.bptt)
        weights = phonograd.seeded_weights(shape, context.seed)
        phonograd.export_artifacts(weights, words, folder, training=training, shape=shape)
    return phonograd.open_artifacts(folder)


def _train_until_plateau(
    row: str, plateau: Plateau, artifacts: phonograd.Artifacts, train_pass: TrainPass, context: Context
) -> dict[str, float]:
    """Figures of the model that is best on the validation text; uploads and bytes until training stopped."""
    work = context.folder(row)

    def progress(reached: Reached) -> None:
        context.progress(reached.passes, plateau.limit, f"{row}: validation perplexity {reached.perplexity:.1f}")

    def validate(weights: Path) -> float:
        return _perplexity(artifacts, weights, "validation-text", context)

    reached = train_to_plateau(plateau, artifacts.path(WEIGHTS), work, train_pass, validate, progress)
    return {
        "perplexity": _perplexity(artifacts, work / reached.best, "test-text", context),
        "uploads": reached.uploads,
        "MB up": reached.nbytes / 1e6,
        "rounds or epochs": reached.passes,
        "the best one": reached.best_pass,
    }


def _perplexity(artifacts: phonograd.Artifacts, weights: Path, text: str, context: Context) -> float:
    """Perplexity with unknown words, which are words of the corpus on PTB."""
    with phonograd.open_model(artifacts, weights=weights) as model:
        return model.evaluate(context.input(text)).perplexity_with_unknown
