"""The teachers' mean predictions (paper P, eq. 4), one teacher at a time, on disk."""

import contextlib
import os
from pathlib import Path

import numpy as np

from phonograd.device_runtime.base.errors import WeightsError
from phonograd.device_runtime.base.files import reserve, storage_errors
from phonograd.device_runtime.formats.tensor_file import Floats, TensorFile, TensorWriter, check_finite
from phonograd.server_agg.aggregation.strategy import ClientUpdate

# Rows of scores that become probabilities at a time: they stay in a core's cache.
ROWS = 8


class Predictions(contextlib.AbstractContextManager["Predictions"]):
    """Soft targets of consecutive windows, each [T·B, V] float32, in a file; use it as a context.

    float32 and not float16: numpy converts float16 more slowly than a disk takes the other half. Its space is reserved
    at once, where the system can: raises StorageError if the disk has not enough.
    """

    def __init__(self, path: Path, windows: int, rows: int, vocabulary: int):
        self.path = path
        self._window = np.zeros((rows, vocabulary), np.float32)
        with storage_errors(path):
            self._file = path.open("w+b", 0)
            try:
                reserve(self._file.fileno(), windows * self._window.nbytes)
            except OSError:
                self._file.close()
                path.unlink()
                raise

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self.path.unlink(missing_ok=True)

    def read(self, number: int) -> Floats:
        """A window's; valid until the next call."""
        view = self._window.data.cast("B")
        done = 0
        while done < len(view):
            done += os.preadv(self._file.fileno(), [view[done:]], number * len(view) + done)
        return self._window

    def write(self, number: int, values: Floats) -> None:
        """Store a window's. Raises StorageError."""
        view = values.data.cast("B")
        done = 0
        with storage_errors(self.path):
            while done < len(view):
                done += os.pwrite(self._file.fileno(), view[done:], number * len(view) + done)


def to_probabilities(scores: Floats, scale: Floats) -> bool:
    """Replace scores [N, V] by their softmax times scale [N]. Returns whether all were finite."""
    finite = True
    for start in range(0, len(scores), ROWS):
        rows = scores[start : start + ROWS]
        with np.errstate(invalid="ignore"):
            rows -= rows.max(axis=1, keepdims=True)
        np.exp(rows, out=rows)
        totals = rows.sum(axis=1)
        finite = finite and bool(np.isfinite(totals).all())
        rows *= (scale[start : start + ROWS] / totals)[:, None]
    return finite


def write_teacher(update: ClientUpdate, base_weights: Path, path: Path) -> None:
    """Write an update's weights as a tensor file. Raises WeightsError, which names the update, StorageError."""
    with TensorFile(base_weights) as base, update.open() as source, storage_errors(path), path.open("wb") as file:
        writer = TensorWriter(file, base.specs.values(), {})
        for spec in base.specs.values():
            values = base.read(spec.name)
            flat = values.reshape(-1)
            for start, tile in source.tiles(spec):
                flat[start : start + len(tile)] = tile
            try:
                check_finite(f"update {update.sha256[:12]}…", spec.name, values)
            except WeightsError as error:
                raise WeightsError(f"{error}; discard it") from error
            writer.write(values)
        writer.finish()
