"""rot-q4, rot-q2, rot-q1: every delta, rotated and quantised (`rotation.py`); of a size known beforehand."""

from collections.abc import Iterable, Iterator

import numpy as np

from phonograd.device_runtime.base.random_words import stream_of
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, TensorSpec
from phonograd.device_runtime.update.codec import Tile
from phonograd.device_runtime.update.rotation import ROTATIONS, block_count, dequantise, packed_bytes, quantise, tiles
from phonograd.device_runtime.update.sent_rows import check_scales, deltas, row_count, trained_rows


def sign_streams(name: str, seed: int) -> list[int]:
    """Where the signs of each rotation come from: the streams of NAME, NAME#2, NAME#3."""
    return [stream_of(seed, name if number == 1 else f"{name}#{number}") for number in range(1, ROTATIONS + 1)]


def rotated_parts(name: str, values: Array, bits: int, seed: int, nearest: bool = False) -> dict[str, Array]:
    """`NAME.scales` F32[blocks] and `NAME.levels` U8 of float32 values [n]; nearest: as of `quantise`."""
    scales, levels = quantise(values, bits, sign_streams(name, seed), nearest)
    return {f"{name}.scales": scales, f"{name}.levels": levels}


def rotated_specs(name: str, elements: int, bits: int) -> list[TensorSpec]:
    """Specs of `rotated_parts`."""
    return [
        TensorSpec(f"{name}.scales", "F32", (block_count(elements),)),
        TensorSpec(f"{name}.levels", "U8", (packed_bytes(elements, bits),)),
    ]


def rotated_values(name: str, elements: int, bits: int, update: TensorFile, seed: int) -> Iterator[tuple[int, Array]]:
    """Runs of decoded values, (place, float32), rising; those of blocks whose scale is 0 are left out."""
    streams = sign_streams(name, seed)
    for tile in tiles(elements):
        scales = update.read_range(f"{name}.scales", tile.block, tile.block + tile.count)
        check_scales(update, f"{name}.scales", scales)
        if scales.any():
            levels = update.read_range(f"{name}.levels", tile.start * bits // 8, tile.stop * bits // 8)
            yield tile.start, dequantise(tile, scales, levels, bits, streams)[: elements - tile.start]


class Rotated:
    """`NAME.scales` and `NAME.levels` of all deltas of a tensor, at 4, 2 or 1 bits a weight."""

    def __init__(self, bits: int):
        self.name = f"rot-q{bits}"
        self._bits = bits

    def nbytes(self, specs: Iterable[TensorSpec]) -> int | None:
        """Bits a weight, and 4 bytes a block."""
        return sum(part.nbytes for spec in specs for part in rotated_specs(spec.name, spec.elements, self._bits))

    def encode(self, spec: TensorSpec, base: Array, trained: Array, seed: int) -> dict[str, Array]:
        """All deltas, those of 0 too."""
        return rotated_parts(spec.name, deltas(spec, base, trained).reshape(-1), self._bits, seed)

    def expects(self, spec: TensorSpec, found: TensorFile) -> list[TensorSpec]:
        """Scales and levels of the whole tensor."""
        del found
        return rotated_specs(spec.name, spec.elements, self._bits)

    def decode(self, spec: TensorSpec, update: TensorFile, base: TensorFile, seed: int) -> Iterator[Tile]:
        """Base + delta; nothing for a tile of 64 blocks in which nothing moved."""
        rows = np.arange(row_count(spec))
        values = rotated_values(spec.name, spec.elements, self._bits, update, seed)
        for start, moved in values:
            yield from trained_rows(spec, rows, start, moved, base)
