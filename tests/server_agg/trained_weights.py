"""Updates of weights in memory, whatever these are: no writer of updates has to like them."""

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, save_tensors
from phonograd.device_runtime.update.update_file import DecodedUpdate, UpdateFile

METADATA = {"format": "phonograd-update", "version": "3", "base_sha256": "ab" * 32, "round": "1", "tokens": "1"}


class TrainedWeights(UpdateFile):
    """The open file of an update that holds all weights: tensors by name, float32 in the base's shapes."""

    def __init__(self, weights: Mapping[str, Array], codec: str = "full-f32"):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "update"
            save_tensors(path, weights, METADATA | {"codec": codec, "seed": "0"}, checksum=True)
            super().__init__(path)

    def on(self, base: TensorFile) -> DecodedUpdate:
        """Decode it on this model."""
        return DecodedUpdate(self, base)


class MovedRows(TrainedWeights):
    """One that leaves out the rows that did not move."""

    def __init__(self, weights: Mapping[str, Array], base: TensorFile):
        parts: dict[str, Array] = {}
        for name, spec in base.specs.items():
            new, old = (array.reshape(-1, spec.row) for array in (weights[name], base.read(name)))
            rows = np.flatnonzero((new != old).any(axis=1)).astype("<u4")
            parts |= {f"{name}.rows": rows, f"{name}.values": new[rows]}
        super().__init__(parts, "rows-f32")


@contextlib.contextmanager
def decoded(update: UpdateFile, base: Path) -> Iterator[DecodedUpdate]:
    """An update on the model in the file `base`; closes both."""
    with update, TensorFile(base) as model, DecodedUpdate(update, model) as on_model:
        yield on_model


def stored(update: Path, base: Path) -> contextlib.AbstractContextManager[DecodedUpdate]:
    """The same of an update's file."""
    return decoded(UpdateFile(update), base)
