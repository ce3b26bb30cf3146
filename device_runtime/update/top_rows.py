"""top-rows: of each matrix the rows of largest norm, and some of the others by chance, rotated and quantised.

Which rows travel is drawn by their norms (`row_sampling.py`), and what travels of them is rotated and quantised
(`rotation.py`): over the seeds, the mean of what is decoded is the delta. Vectors and small tensors travel whole.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from phonograd.device_runtime.base.errors import UpdateError
from phonograd.device_runtime.base.random_words import random_words, stream_of, uniform_numbers
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, TensorSpec
from phonograd.device_runtime.update.codec import Tile
from phonograd.device_runtime.update.rotated import rotated_parts, rotated_specs, rotated_values
from phonograd.device_runtime.update.rotation import BLOCK, LEVELS
from phonograd.device_runtime.update.row_sampling import draw_rows, row_norms
from phonograd.device_runtime.update.sent_rows import deltas, mask_part, mask_specs, row_count, sent_rows, trained_rows


@dataclass(frozen=True)
class TopRows:
    """`NAME.rows`, and `NAME.scales` and `NAME.levels` of the drawn rows, one after the other, weighted.

    rows: the most that travel of a matrix, at `bits` a weight; whole_bits: of tensors that travel whole. A reader tells
    both from the parts, so that senders may choose them.
    """

    rows: int = 512
    bits: int = 1
    whole_bits: int = 4
    name = "top-rows"

    def nbytes(self, specs: Iterable[TensorSpec]) -> int | None:
        """Unknown before encoding: fewer rows may have moved than may travel."""
        del specs
        return None

    def encode(self, spec: TensorSpec, base: Array, trained: Array, seed: int) -> dict[str, Array]:
        """Nothing for a tensor that did not move."""
        moved = deltas(spec, base, trained)
        if not moved.any():
            return {}
        if row_count(spec) == 1 or spec.elements <= BLOCK:
            return rotated_parts(spec.name, moved.reshape(-1), self.whole_bits, seed)
        uniform = uniform_numbers(random_words(stream_of(seed, f"{spec.name}.rows"), 0, 1))[0]
        rows, chances = draw_rows(row_norms(moved), self.rows, float(uniform))
        values = (moved[rows] / chances[:, None]).astype(np.float32)
        parts = rotated_parts(spec.name, values.reshape(-1), self.bits, seed)
        return {**mask_part(spec, rows), **parts}

    def expects(self, spec: TensorSpec, found: TensorFile) -> list[TensorSpec]:
        """Nothing, or scales and levels of as many rows as `NAME.rows` has, at the bits that the levels' size tells."""
        if f"{spec.name}.levels" not in found.specs:
            return []
        elements = len(sent_rows(spec, found)) * spec.row
        return [*mask_specs(spec, found), *rotated_specs(spec.name, elements, _bits(spec, elements, found))]

    def decode(self, spec: TensorSpec, update: TensorFile, base: TensorFile, seed: int) -> Iterator[Tile]:
        """Base + delta, of the rows that travelled."""
        if f"{spec.name}.levels" not in update.specs:
            return
        rows = sent_rows(spec, update)
        elements = len(rows) * spec.row
        bits = _bits(spec, elements, update)
        for start, moved in rotated_values(spec.name, elements, bits, update, seed):
            yield from trained_rows(spec, rows, start, moved, base)


def _bits(spec: TensorSpec, elements: int, found: TensorFile) -> int:
    levels = found.specs[f"{spec.name}.levels"]
    sizes = {bits: rotated_specs(spec.name, elements, bits)[1] for bits in LEVELS}
    for bits, expected in sizes.items():
        if levels == expected:
            return bits
    raise UpdateError(f"{found.path}: {' or '.join(map(str, sizes.values()))} expected, found {levels}")
