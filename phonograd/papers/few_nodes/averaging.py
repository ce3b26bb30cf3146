"""Training across nodes by averaging: each node trains for whole epochs (native engine), then uploads its weights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from phonograd.device_runtime.engine.backend import BackendOptions
from phonograd.device_runtime.formats.manifest import Artifacts
from phonograd.device_runtime.formats.tensor_file import Array, load_tensors
from phonograd.device_runtime.text.vocabulary import Ids
from phonograd.device_runtime.training.round import Round, RoundSettings
from phonograd.papers.few_nodes.plateau import Reached
from phonograd.papers.node_round import NodeRound


@dataclass(frozen=True)
class Averaging:
    """Rounds of averaging on the nodes' streams, for `train_to_plateau`. work: a folder for updates and models.

    In the first round the nodes train one model in turn; in each later one all start from the same model, and the plain
    mean of theirs is the next (paper P, section 3).
    """

    artifacts: Artifacts
    streams: Sequence[Ids]
    work: Path
    threads: int

    def __call__(self, base: Path, epochs: int, reached: Reached) -> tuple[Path, int, int]:
        """A round; raises TrainingError, StorageError."""
        nodes = list(range(len(self.streams)))
        nbytes = 0
        for place, group in enumerate([nodes] if reached.passes else [[node] for node in nodes]):
            round_ = NodeRound(base, self.work, reached.uploads + place)
            for node in group:
                weights = self._train(base, node, epochs, reached.learning_rate, round_.seed(str(node)))
                round_.add(str(node), weights, len(self.streams[node]))
            base = round_.close()
            nbytes += round_.nbytes
        return base, len(nodes), nbytes

    def _train(self, base: Path, node: int, epochs: int, learning_rate: float, seed: int) -> Mapping[str, Array]:
        out = self.work / "node.safetensors"
        settings = RoundSettings(
            folder=self.artifacts.folder,
            stream=self.streams[node],
            weights=base,
            epochs=epochs,
            learning_rate=learning_rate,
            seed=seed,
            out=out,
            options=BackendOptions(threads=self.threads),
        )
        with Round(settings) as round_:
            round_.train()
        weights = load_tensors(out)
        out.unlink()
        return weights
