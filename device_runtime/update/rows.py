"""rows-f32: lossless; rows that did not move are left out.

One epoch touches the input-embedding rows of the words it saw and no others, and those rows are most of what stays
home. The list of rows that travel names the words of the user's text: see FORMAT.md, "What an update gives away".
"""

from collections.abc import Iterable, Iterator

import numpy as np

from phonograd.device_runtime.base.errors import UpdateError
from phonograd.device_runtime.formats.tensor_file import TILE_ELEMENTS, Array, TensorFile, TensorSpec
from phonograd.device_runtime.update.codec import Tile
from phonograd.device_runtime.update.full import FullF32

INDEX_BYTES = 4


class RowsF32:
    """Per tensor whichever is smaller: all of it, or `<name>.rows` U32[n] (rising) and `<name>.values` F32[n, row]."""

    name = "rows-f32"

    def __init__(self) -> None:
        self._full = FullF32()

    def nbytes(self, specs: Iterable[TensorSpec]) -> int | None:
        """Unknown before encoding: it depends on which rows moved."""
        del specs
        return None

    def encode(self, spec: TensorSpec, base: Array, trained: Array, seed: int) -> dict[str, Array]:
        """Rows whose bits differ from the base's, or the whole tensor where that is smaller."""
        old, new = (np.ascontiguousarray(array, "<f4").reshape(-1, spec.row) for array in (base, trained))
        # Bits, not values: -0.0 and 0.0 are equal, and NaN differs from itself.
        rows = np.flatnonzero((old.view("<u4") != new.view("<u4")).any(axis=1)).astype("<u4")
        if len(rows) * (INDEX_BYTES + 4 * spec.row) >= spec.nbytes:
            return self._full.encode(spec, base, trained, seed)
        return {f"{spec.name}.rows": rows, f"{spec.name}.values": new[rows]}

    def expects(self, spec: TensorSpec, found: TensorFile) -> list[TensorSpec]:
        """The whole tensor, or rows and values of one length."""
        if spec.name in found.specs:
            return [spec]
        rows = found.specs.get(f"{spec.name}.rows")
        if rows is None or len(rows.shape) != 1:
            raise UpdateError(f"{found.path}: tensor {spec} or its rows U32[n] expected, found neither")
        moved = rows.shape[0]
        if moved * spec.row > spec.elements:
            raise UpdateError(f"{found.path}: {rows}: more rows than tensor {spec} has; encode the update again")
        return [
            TensorSpec(f"{spec.name}.rows", "U32", (moved,)),
            TensorSpec(f"{spec.name}.values", "F32", (moved, spec.row)),
        ]

    def decode(self, spec: TensorSpec, update: TensorFile, base: TensorFile, seed: int) -> Iterator[Tile]:
        """Runs of neighbouring rows, at most a tile at a time."""
        if spec.name in update.specs:
            yield from self._full.decode(spec, update, base, seed)
            return
        rows = update.read(f"{spec.name}.rows").astype(np.int64)
        count = spec.elements // spec.row
        if len(rows) == 0:
            return
        if rows[-1] >= count or (np.diff(rows) <= 0).any():
            raise UpdateError(f"{update.path}: {spec.name}.rows: expected rising row numbers below {count}")
        run_starts = np.flatnonzero(np.diff(rows, prepend=-2) != 1)
        run_stops = np.append(run_starts[1:], len(rows))
        longest = max(1, TILE_ELEMENTS // spec.row)
        for run_start, run_stop in zip(run_starts, run_stops, strict=True):
            for first in range(int(run_start), int(run_stop), longest):
                last = min(first + longest, int(run_stop))
                values = update.read_range(f"{spec.name}.values", first * spec.row, last * spec.row)
                yield int(rows[first]) * spec.row, values
