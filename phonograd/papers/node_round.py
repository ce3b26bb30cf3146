"""One round of nodes in one process: their weights become update files, which the server's aggregation averages."""

from collections.abc import Mapping
from pathlib import Path

from phonograd.device_runtime.base.errors import TrainingError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile
from phonograd.device_runtime.update.seeds import seed_of
from phonograd.device_runtime.update.update_file import UpdateInfo, write_update
from phonograd.server_agg.aggregation.next_model import ModelFiles
from phonograd.server_agg.aggregation.settings import StrategySettings
from phonograd.simulation.server import Arrival, close_round


class NodeRound:
    """A round whose model, the mean of what is added, becomes folder/NUMBER.safetensors. nbytes: of all updates."""

    def __init__(self, base: Path, folder: Path, number: int):
        self.nbytes = 0
        self._base = base
        self._base_sha256 = sha256_of_file(base)
        self._folder = folder
        self._number = number
        self._arrivals: list[Arrival] = []

    def seed(self, node: str) -> int:
        """The seed of a node's training, as phones have it."""
        return seed_of(self._base_sha256, self._number, node)

    def add(self, node: str, weights: Mapping[str, Array], examples: int) -> None:
        """A node uploads weights that it trained on so many tokens or images. Raises WeightsError, StorageError."""
        path = self._folder / f"{self._number}.{node}.update"
        info = UpdateInfo(self._base_sha256, self._number, examples, "full-f32", self.seed(node))
        with TensorFile(self._base) as base:
            written = write_update(path, base, weights, info)
        self.nbytes += written.nbytes
        self._arrivals.append(Arrival(node, path, written.sha256))

    def close(self) -> Path:
        """Average the updates, remove their files, and return the model's. Raises TrainingError, StorageError."""
        model = self._folder / f"{self._number}.safetensors"
        files = ModelFiles(self._base), ModelFiles(model, self._folder / "optimizer.safetensors")
        settings = StrategySettings(weighting="equal", max_tokens=10**12)
        closed = close_round(settings, self._number, files[0], self._base_sha256, self._arrivals, files[1], 0)
        for arrival in self._arrivals:
            arrival.path.unlink()
        if closed.published is None:
            raise TrainingError(f"round {self._number}: no update was accepted")
        return model
