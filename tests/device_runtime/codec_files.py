"""Updates of small models, written and read back, for the tests of codecs."""

from pathlib import Path

import numpy as np

from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, save_tensors
from phonograd.device_runtime.update.update_file import UpdateFile, UpdateInfo, write_update
from tests.reference.codecs import read_parts

# Odd on purpose: rows that divide no block, a tensor of several blocks, vectors, one element.
SHAPES = {
    "embedding.weight": (300, 33),
    "lstm.0.W": (1, 24, 7),
    "lstm.0.B": (1, 48),
    "decoder.weight": (71, 130),
    "decoder.bias": (300,),
    "one": (1,),
}


def base_weights(seed: int = 0) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    return {name: random.normal(size=shape).astype("<f4") for name, shape in SHAPES.items()}


def trained_weights(base: dict[str, Array], scale: float = 1e-2, seed: int = 1) -> dict[str, Array]:
    """Every tensor moves; of the embedding only one row in four, and every row by another length."""
    random = np.random.default_rng(seed)
    trained = {}
    for name, array in base.items():
        moved = random.normal(scale=scale, size=array.shape)
        if len(SHAPES[name]) > 1:
            moved *= random.exponential(size=(*array.shape[:-1], 1))
        if name == "embedding.weight":
            moved[np.arange(len(moved)) % 4 > 0] = 0
        trained[name] = (array + moved).astype("<f4")
    return trained


class Workshop:
    """A base model on disk, and updates against it."""

    def __init__(self, folder: Path, base: dict[str, Array]):
        self.folder = folder
        self.base = base
        self.path = folder / "base"
        self.sha256 = save_tensors(self.path, base).sha256

    def encode(self, trained: dict[str, Array], codec: str, seed: int = 7, out: str = "update") -> Path:
        path = self.folder / out
        with TensorFile(self.path) as base:
            write_update(path, base, trained, UpdateInfo(self.sha256, 3, 4000, codec, seed))
        return path

    def decode(self, path: Path) -> dict[str, Array]:
        """Checked whole, as a server does."""
        with UpdateFile(path) as update, TensorFile(self.path) as base:
            update.check(base, self.sha256)
            return update.weights(base)

    def round_trip(self, trained: dict[str, Array], codec: str, seed: int = 7) -> dict[str, Array]:
        return self.decode(self.encode(trained, codec, seed))

    def data_bytes(self, path: Path) -> int:
        return sum(part.nbytes for part in read_parts(path)[0].values())


LOSSLESS = ["full-f32", "rows-f32"]
UNBIASED = ["delta-int8", "rot-q4", "rot-q2", "rot-q1", "top-rows"]
