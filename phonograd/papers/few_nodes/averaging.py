"""Training across nodes by averaging: each node trains for whole epochs (native engine), then uploads its weights."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from phonograd.device_runtime.engine import BackendOptions
from phonograd.device_runtime.formats.manifest import WEIGHTS, Artifacts
from phonograd.device_runtime.formats.tensor_file import Array, load_tensors
from phonograd.device_runtime.text.vocabulary import Ids
from phonograd.device_runtime.training.round import Round, RoundSettings
from phonograd.papers.node_round import NodeRound, Pass


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
                weights, loss = _trained(
                    artifacts, base, streams[node], part, threads, round_.seed(str(node)), work / "node.safetensors"
                )
                round_.add(str(node), weights, len(streams[node]))
                losses.append(loss)
            uploads += len(group)
            nbytes += round_.nbytes
            base = _replaced(base, round_.close(), artifacts)
        if progress is not None:
            progress(number, sum(losses) / len(losses))
    return base, uploads, nbytes


def _trained(
    artifacts: Artifacts, base: Path, stream: Ids, part: Pass, threads: int, seed: int, out: Path
) -> tuple[Mapping[str, Array], float]:
    """The weights of a node after its epochs, by way of a file `out`, and the loss of the last step."""
    settings = RoundSettings(
        artifacts.folder,
        stream=stream,
        weights=base,
        epochs=part.epochs,
        learning_rate=part.learning_rate,
        seed=seed,
        out=out,
        options=BackendOptions(threads=threads),
    )
    with Round(settings) as round_:
        trained = round_.train()
    weights = load_tensors(out)
    out.unlink()
    return weights, trained.report.losses[-1]


def _replaced(base: Path, model: Path, artifacts: Artifacts) -> Path:
    if base != artifacts.path(WEIGHTS):
        base.unlink()
    return model
