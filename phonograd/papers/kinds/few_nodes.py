"""A language model from scratch on a few nodes: averaging after whole epochs against DGC (paper P, Table 5)."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

import phonograd
from phonograd.device_runtime.base.documents import Positive, Record
from phonograd.device_runtime.formats.manifest import VOCABULARY, WEIGHTS
from phonograd.device_runtime.formats.tensor_file import load_tensors, save_tensors
from phonograd.device_runtime.text.messages import read_messages
from phonograd.device_runtime.text.vocabulary import Ids
from phonograd.papers.few_nodes.averaging import train_averaged
from phonograd.papers.few_nodes.dgc import train_compressed
from phonograd.papers.node_round import Pass
from phonograd.papers.run import Context, Outcome


class Settings(Record, frozen=True):
    """vocabulary: words, from the training text; units: of the embedding and of each layer; tokens: of the training
    text that are used; averaging: its rounds; compressed: DGC's epochs; codecs: with which averaging is repeated.
    """

    vocabulary: Positive
    units: Positive
    layers: Positive
    minibatch: Positive
    bptt: Positive
    tokens: Positive
    nodes: Positive
    averaging: tuple[Pass, ...]
    compressed: tuple[Pass, ...]
    codecs: tuple[str, ...] = ()


def run(settings: Settings, context: Context) -> Outcome:
    """Train both ways from the same weights on the same parts of the text."""
    artifacts = _artifacts(settings, context)
    vocabulary = phonograd.Vocabulary.load(artifacts.path(VOCABULARY))
    stream = vocabulary.encode(read_messages(context.input("training-text")))[: settings.tokens]
    streams = np.array_split(stream, settings.nodes)
    rows = {
        "initial": context.kept(
            "initial", lambda: {"perplexity": _perplexity(artifacts, artifacts.path(WEIGHTS), context)}
        ),
        "averaging": context.kept("averaging", _averaged(artifacts, streams, settings.averaging, context, "full-f32")),
        "DGC": context.kept("DGC", _compressed(artifacts, streams, settings.compressed, context)),
    }
    for codec in settings.codecs:
        row = f"averaging, {codec}"
        rows[row] = context.kept(row, _averaged(artifacts, streams, settings.averaging, context, codec))
    megabytes = artifacts.path(WEIGHTS).stat().st_size / 1e6
    return Outcome(rows, {"tokens": len(stream), "MB of the weights": megabytes})


def _artifacts(settings: Settings, context: Context) -> phonograd.Artifacts:
    folder = context.work / "artifacts"
    if not folder.exists():
        words = phonograd.build_vocabulary([context.input("training-text")], settings.vocabulary).vocabulary
        units = settings.units
        shape = phonograd.LanguageModelConfig("lstm", len(words), units, units, settings.layers, tied=True)
        training = phonograd.TrainingConfig(minibatch=settings.minibatch, bptt=settings.bptt)
        weights = phonograd.seeded_weights(shape, context.seed)
        phonograd.export_artifacts(weights, words, folder, training=training, shape=shape)
    return phonograd.open_artifacts(folder)


def _averaged(
    artifacts: phonograd.Artifacts, streams: list[Ids], passes: tuple[Pass, ...], context: Context, codec: str
) -> Callable[[], dict[str, float]]:
    def measure() -> dict[str, float]:
        work = context.folder(f"averaging {codec}")

        def progress(number: int, loss: float) -> None:
            context.progress(number, len(passes), f"averaging, {codec}: loss {loss:.2f}")

        trained = train_averaged(artifacts, streams, passes, work, context.workers, progress, codec)
        return _figures(artifacts, *trained, context)

    return measure


def _compressed(
    artifacts: phonograd.Artifacts, streams: list[Ids], passes: tuple[Pass, ...], context: Context
) -> Callable[[], dict[str, float]]:
    def measure() -> dict[str, float]:
        total = sum(part.epochs for part in passes)

        def progress(number: int, loss: float) -> None:
            context.progress(number, total, f"DGC: loss {loss:.2f}")

        first = load_tensors(artifacts.path(WEIGHTS))
        weights, uploads, nbytes = train_compressed(
            artifacts.manifest, first, streams, passes, context.workers, progress
        )
        trained = context.work / "compressed.safetensors"
        save_tensors(trained, weights)
        return _figures(artifacts, trained, uploads, nbytes, context)

    return measure


def _figures(
    artifacts: phonograd.Artifacts, weights: Path, uploads: int, nbytes: int, context: Context
) -> dict[str, float]:
    return {"perplexity": _perplexity(artifacts, weights, context), "uploads": uploads, "MB up": nbytes / 1e6}


def _perplexity(artifacts: phonograd.Artifacts, weights: Path, context: Context) -> float:
    """With unknown words, as on PTB, where they are words of the corpus."""
    with phonograd.open_model(artifacts, weights=weights) as model:
        return model.evaluate(context.input("test-text")).perplexity_with_unknown
