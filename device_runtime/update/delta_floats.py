"""delta-f16 and delta-bf16: what moved, in 16 bits, rounded to the nearest; rows that did not move are left out."""

from collections.abc import Iterable, Iterator

import numpy as np

from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, TensorSpec, tile_ranges
from phonograd.device_runtime.update.codec import Tile
from phonograd.device_runtime.update.sent_rows import deltas, mask_part, mask_specs, sent_rows, trained_rows

F16_LARGEST = 65504.0
BF16_LARGEST_BITS = 0x7F7F


class DeltaF16:
    """`NAME.values` F16[n, row]: deltas of the rows that moved; what F16 can't reach is cut to its largest number."""

    name = "delta-f16"
    _dtype = "F16"

    def nbytes(self, specs: Iterable[TensorSpec]) -> int | None:
        """Unknown before encoding: it depends on which rows moved."""
        del specs
        return None

    def encode(self, spec: TensorSpec, base: Array, trained: Array, seed: int) -> dict[str, Array]:
        """Rows whose deltas are not 0 throughout; nothing if there are none."""
        del seed
        moved = deltas(spec, base, trained)
        rows = np.flatnonzero(moved.any(axis=1))
        if len(rows) == 0:
            return {}
        return {**mask_part(spec, rows), f"{spec.name}.values": self._rounded(moved[rows])}

    def expects(self, spec: TensorSpec, found: TensorFile) -> list[TensorSpec]:
        """Nothing, or the values of as many rows as `NAME.rows` has."""
        part = f"{spec.name}.values"
        if part not in found.specs:
            return []
        return [*mask_specs(spec, found), TensorSpec(part, self._dtype, (len(sent_rows(spec, found)), spec.row))]

    def decode(self, spec: TensorSpec, update: TensorFile, base: TensorFile, seed: int) -> Iterator[Tile]:
        """Base + delta, of the rows that travelled."""
        del seed
        part = f"{spec.name}.values"
        if part not in update.specs:
            return
        rows = sent_rows(spec, update)
        for start, stop in tile_ranges(len(rows) * spec.row):
            yield from trained_rows(spec, rows, start, self._widened(update.read_range(part, start, stop)), base)

    def _rounded(self, moved: Array) -> Array:
        return np.clip(moved, -F16_LARGEST, F16_LARGEST).astype("<f2")

    def _widened(self, values: Array) -> Array:
        with np.errstate(invalid="ignore"):  # a signaling NaN
            return values.astype(np.float32)


class DeltaBF16(DeltaF16):
    """The same in bfloat16: float32's range, 8 bits of precision; `NAME.values` U16, the upper half of a float32."""

    name = "delta-bf16"
    _dtype = "U16"

    def _rounded(self, moved: Array) -> Array:
        bits = moved.view("<u4")
        upper = (bits + (0x7FFF + (bits >> 16 & 1))) >> 16  # to the nearest, halves to even
        sign = upper & 0x8000
        rounded: Array = np.minimum(upper & 0x7FFF, BF16_LARGEST_BITS) | sign
        return rounded.astype("<u2")

    def _widened(self, values: Array) -> Array:
        widened: Array = (values.astype("<u4") << 16).view("<f4")
        return widened
