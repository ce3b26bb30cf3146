"""Training across nodes by averaging: each node trains for whole epochs (native engine), then uploads its weights."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from phonograd.device_runtime.engine import BackendOptions, load_backend
from phonograd.device_runtime.formats.manifest import WEIGHTS, Artifacts
from phonograd.device_runtime.formats.tensor_file import Array
from phonograd.device_runtime.text.rehearsal import TrainingText
from phonograd.device_runtime.text.vocabulary import Ids
from phonograd.device_runtime.training.trainer import train_epoch
from phonograd.papers.few_nodes.schedule import Pass
from phonograd.papers.node_round import NodeRound


def train_averaged(
    artifacts: Artifacts,
    streams: Sequence[Ids],
    rounds: Sequence[Pass],
    work: Path,
    threads: int,
    progress: Callable[[int, float], None] | None = None,
    codec: str = "full-f32",
) -> tuple[Path, int, int]:
    """Train from the artifacts' weights on the nodes' streams; returns the model's file, uploads, and bytes uploaded.

    In the first round the nodes train one model in turn; in each later one all start from the same model, and the plain
    mean of theirs is the next (paper P, section 3). work: a folder for updates and models. progress: called after each
    round with its number and the nodes' mean loss in the last step, nats a token. codec: of the uploads. Raises
    TrainingError, StorageError.
    """
    base = artifacts.path(WEIGHTS)
    uploads = nbytes = 0
    for number, part in enumerate(rounds, 1):
        groups = [[node] for node in range(len(streams))] if number == 1 else [list(range(len(streams)))]
        losses = []
        for group in groups:
            round_ = NodeRound(base, work, uploads, codec)
            for node in group:
                weights, loss = _trained(artifacts, base, streams[node], part, threads, round_.seed(str(node)))
                round_.add(str(node), weights, len(streams[node]))
                losses.append(loss)
            uploads += len(group)
            nbytes += round_.nbytes
            base = _replaced(base, round_.close(), artifacts)
        if progress is not None:
            progress(number, sum(losses) / len(losses))
    return base, uploads, nbytes


def _trained(
    artifacts: Artifacts, base: Path, stream: Ids, part: Pass, threads: int, seed: int
) -> tuple[Mapping[str, Array], float]:
    """The weights of a node after its epochs, and the loss of the last step."""
    text = TrainingText(stream, len(stream), 0)
    with contextlib.closing(
        load_backend("native", artifacts, base, BackendOptions(threads=threads, seed=seed))
    ) as engine:
        report = train_epoch(engine, artifacts.manifest, text, part.learning_rate, epochs=part.epochs)
        return engine.weights(), report.losses[-1]


def _replaced(base: Path, model: Path, artifacts: Artifacts) -> Path:
    if base != artifacts.path(WEIGHTS):
        base.unlink()
    return model
