"""Updates of a small model, written and read back, for the tests of codecs."""

from pathlib import Path

import numpy as np

from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, load_tensors, save_tensors
from phonograd.device_runtime.update.update_file import UpdateFile, UpdateInfo, write_update
from tests.reference import codecs

# Odd on purpose: rows that divide no block, a tensor of several blocks, vectors, one element.
SHAPES = {
    "embedding.weight": (300, 33),
    "lstm.0.W": (1, 24, 7),
    "lstm.0.B": (1, 48),
    "decoder.weight": (71, 130),
    "decoder.bias": (300,),
    "one": (1,),
}


class Workshop:
    """A base model on disk, and updates against it."""

    def __init__(self, folder: Path, base: dict[str, Array] | None = None, metadata: dict[str, str] | None = None):
        random = np.random.default_rng(0)
        self.folder = folder
        made: dict[str, Array] = {name: random.normal(size=shape).astype("<f4") for name, shape in SHAPES.items()}
        self.base = base or made
        self.path = folder / "base"
        self.sha256 = save_tensors(self.path, self.base, metadata or {}).sha256

    def info(self, codec: str, seed: int = 7) -> UpdateInfo:
        return UpdateInfo(self.sha256, 3, 4000, codec, seed)

    def train(self, scale: float = 1e-2, seed: int = 1) -> dict[str, Array]:
        """Every tensor moves; of the embedding only one row in four, and every row by another length."""
        random = np.random.default_rng(seed)
        trained = {}
        for name, array in self.base.items():
            moved = random.normal(scale=scale, size=array.shape)
            if array.ndim > 1:
                moved *= random.exponential(size=(*array.shape[:-1], 1))
            if name == "embedding.weight":
                moved[np.arange(len(moved)) % 4 > 0] = 0
            trained[name] = (array + moved).astype("<f4")
        return trained

    def move_rows(self, rows: dict[str, list[int]]) -> dict[str, Array]:
        """The base's tensors with one element changed in each of these rows."""
        tensors = load_tensors(self.path)
        for name, numbers in rows.items():
            flat = tensors[name].reshape(-1, tensors[name].shape[-1])
            for row in numbers:
                flat[row % len(flat), row % flat.shape[1]] += 1
        return tensors

    def encode(self, trained: dict[str, Array], info: UpdateInfo | str) -> Path:
        """info: or its codec."""
        path = self.folder / "update"
        with TensorFile(self.path) as base:
            write_update(path, base, trained, self.info(info) if isinstance(info, str) else info)
        return path

    def decode(self, path: Path) -> dict[str, Array]:
        """Checked whole, as a server does."""
        with UpdateFile(path) as update, TensorFile(self.path) as base:
            update.check(base, self.sha256)
            return update.weights(base)

    def round_trip(self, trained: dict[str, Array], info: UpdateInfo | str) -> dict[str, Array]:
        """The update and what it stands for must be the reference's."""
        info = self.info(info) if isinstance(info, str) else info
        path = self.encode(trained, info)
        with TensorFile(self.path) as base:
            codecs.write_update(self.folder / "reference", base, trained, info)
            expected = codecs.decode_file(path, base)
        assert path.read_bytes() == (self.folder / "reference").read_bytes()
        found = self.decode(path)
        for name, values in expected.items():
            np.testing.assert_array_equal(found[name], values, name)
        return found

    def part_bytes(self, path: Path) -> int:
        return sum(part.nbytes for part in codecs.read_parts(path)[0].values())
