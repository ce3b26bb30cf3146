"""delta-int8: what moved, a byte a weight, rounded at random so that its mean is right; unmoved rows are left out."""

from collections.abc import Iterable, Iterator

import numpy as np

from phonograd.device_runtime.base.random_words import random_words, stream_of
from phonograd.device_runtime.formats.tensor_file import TILE_ELEMENTS, Array, TensorFile, TensorSpec
from phonograd.device_runtime.update.codec import Tile
from phonograd.device_runtime.update.sent_rows import (
    check_scales,
    deltas,
    mask_part,
    mask_specs,
    sent_rows,
    trained_rows,
)

LARGEST = 127
LANES = 4  # 16-bit random numbers in a word


class DeltaInt8:
    """`NAME.scales` F32[n], the largest |delta| of a row / 127, and `NAME.values` I8[n, row] of the rows that moved.

    A value is floor(delta / scale + u), u uniform over (k + 1/2) / 65536: its mean is delta / scale to 1/131072.
    """

    name = "delta-int8"

    def nbytes(self, specs: Iterable[TensorSpec]) -> int | None:
        """Unknown before encoding: it depends on which rows moved."""
        del specs
        return None

    def encode(self, spec: TensorSpec, base: Array, trained: Array, seed: int) -> dict[str, Array]:
        """Rows whose scale is above 0; nothing if there are none."""
        moved = deltas(spec, base, trained)
        scales = np.abs(moved).max(axis=1, initial=0) / np.float32(LARGEST)
        rows = np.flatnonzero(scales)
        if len(rows) == 0:
            return {}
        stream = stream_of(seed, spec.name)
        values = np.empty((len(rows), spec.row), "i1")
        for first, last in _row_tiles(len(rows), spec.row):
            scaled = moved[rows[first:last]] / scales[rows[first:last], None]
            scaled += _uniform(stream, first * spec.row, last * spec.row).reshape(scaled.shape)
            # A scale that is hardly above 0 is rounded itself, and a quotient then larger than 127.
            values[first:last] = np.clip(np.floor(scaled, out=scaled), -LARGEST, LARGEST)
        return {**mask_part(spec, rows), f"{spec.name}.scales": scales[rows], f"{spec.name}.values": values}

    def expects(self, spec: TensorSpec, found: TensorFile) -> list[TensorSpec]:
        """Nothing, or scales and values of as many rows as `NAME.rows` has."""
        scales, values = f"{spec.name}.scales", f"{spec.name}.values"
        if values not in found.specs:
            return []
        count = len(sent_rows(spec, found))
        return [
            *mask_specs(spec, found),
            TensorSpec(scales, "F32", (count,)),
            TensorSpec(values, "I8", (count, spec.row)),
        ]

    def decode(self, spec: TensorSpec, update: TensorFile, base: TensorFile, seed: int) -> Iterator[Tile]:
        """Base + scale x value, of the rows that travelled."""
        del seed
        part = f"{spec.name}.values"
        if part not in update.specs:
            return
        rows = sent_rows(spec, update)
        for first, last in _row_tiles(len(rows), spec.row):
            scales = update.read_range(f"{spec.name}.scales", first, last)
            check_scales(update, f"{spec.name}.scales", scales)
            values = update.read_range(part, first * spec.row, last * spec.row).reshape(-1, spec.row)
            with np.errstate(over="ignore"):
                moved = values * scales[:, None]
            yield from trained_rows(spec, rows, first * spec.row, moved.reshape(-1), base)


def _row_tiles(rows: int, width: int) -> Iterator[tuple[int, int]]:
    step = max(1, TILE_ELEMENTS // width)
    for first in range(0, rows, step):
        yield first, min(first + step, rows)


def _uniform(stream: int, start: int, stop: int) -> Array:
    """Element i of the values sent has bits 16·(i mod 4) to 16·(i mod 4) + 15 of word i div 4 of the stream."""
    first = start // LANES
    words = random_words(stream, first, -(-stop // LANES) - first)
    lanes = words.astype("<u8", copy=False).view("<u2")[start - first * LANES : stop - first * LANES]
    return (lanes.astype(np.float32) + np.float32(0.5)) * np.float32(2**-16)
