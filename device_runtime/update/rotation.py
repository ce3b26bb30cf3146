"""Randomised Hadamard rotations and quantisation: EDEN (Vargaftik et al., 2022; at 1 bit, DRIVE, 2021). See FORMAT.md.

A vector is cut into blocks x of d elements. A block becomes y = H·D₃·H·D₂·H·D₁·x, with D random signs and H Sylvester's
Hadamard matrix of ±1, so that |y|² = d³·|x|². The elements of y are close to Gaussian whatever x was, so one table of
Lloyd-Max levels fits all. What travels is the level q of each element and one scale s = |y|² / (d³·<y, q>): over the
signs, the mean of s·D₁·H·D₂·H·D₃·H·q is x. Sums run in a fixed order, so that every implementation gets the same bits.

EDEN's proof of that mean is for a rotation drawn uniformly. One H·D is far from that where few elements of x are not 0:
y then has few magnitudes, and what is lost in their rounding is the same for all signs. Three are close to it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from phonograd.device_runtime.base.random_words import random_words
from phonograd.device_runtime.engine.c_abi import available_library
from phonograd.device_runtime.formats.tensor_file import TILE_ELEMENTS, Array
from phonograd.device_runtime.update.row_sampling import sum_by_halves

BLOCK = 4096  # its scale of 4 bytes costs 1/128 bit an element
ROTATIONS = 3  # of a block
WORD = 64  # signs in a random word; the last block of a vector is of a smaller power of two, but not below this
TILE_BLOCKS = TILE_ELEMENTS // BLOCK

# Lloyd-Max levels of a standard Gaussian by bits, the positive half; thresholds lie half way between levels.
_POSITIVE_LEVELS = {
    1: (0.7978846,),
    2: (0.4527800, 1.5104176),
    4: (0.1283950, 0.3880483, 0.6567591, 0.9423404, 1.2562312, 1.6180464, 2.0690172, 2.7325895),
}
LEVELS = {
    bits: np.array([*(-level for level in reversed(half)), *half], "<f4") for bits, half in _POSITIVE_LEVELS.items()
}


@dataclass(frozen=True)
class Blocks:
    """Neighbouring blocks of one size: number of the first, how many, elements of each, place of the first element."""

    block: int
    count: int
    size: int
    start: int

    @property
    def stop(self) -> int:
        """The place after the last element, padding included."""
        return self.start + self.count * self.size


def tiles(elements: int) -> Iterator[Blocks]:
    """The blocks that `elements` fill, in tiles; the last of them may be a shorter block by itself."""
    whole, rest = divmod(elements, BLOCK)
    for block in range(0, whole, TILE_BLOCKS):
        yield Blocks(block, min(TILE_BLOCKS, whole - block), BLOCK, block * BLOCK)
    if rest:
        yield Blocks(whole, 1, max(WORD, 1 << (rest - 1).bit_length()), whole * BLOCK)


def block_count(elements: int) -> int:
    """Blocks, and so scales, of that many elements."""
    return -(-elements // BLOCK)


def packed_bytes(elements: int, bits: int) -> int:
    """Bytes of the levels of that many elements, padding included."""
    whole, rest = divmod(elements, BLOCK)
    last = max(WORD, 1 << (rest - 1).bit_length()) if rest else 0
    return (whole * BLOCK + last) * bits // 8


def quantise(values: Array, bits: int, streams: Sequence[int], nearest: bool = False) -> tuple[Array, Array]:
    """Scales F32[blocks] and packed levels U8[packed_bytes] of float32 values [n], a rotation for each of `streams`.

    nearest: scales of the least error, as links have them, in place of those that make the mean right.
    """
    scales = np.empty(block_count(len(values)), "<f4")
    packed = np.empty(packed_bytes(len(values), bits), "u1")
    for tile in tiles(len(values)):
        x = np.zeros((tile.count, tile.size), np.float32)
        own = values[tile.start : tile.stop]
        x.reshape(-1)[: len(own)] = own
        rotate(x, tile.start, streams)
        energy = sum_by_halves(np.square(x, dtype=np.float64))
        numbers = _nearest(x, np.sqrt(energy / tile.size), bits)
        levels = LEVELS[bits][numbers]
        aligned = sum_by_halves(np.multiply(x, levels, dtype=np.float64))
        above, below = (aligned, sum_by_halves(np.square(levels, dtype=np.float64))) if nearest else (energy, aligned)
        scales[tile.block : tile.block + tile.count] = np.divide(
            above, below * float(tile.size) ** len(streams), out=np.zeros_like(energy), where=aligned > 0
        )
        packed[tile.start * bits // 8 : tile.stop * bits // 8] = _pack(numbers, bits)
    return scales, packed


def dequantise(tile: Blocks, scales: Array, packed: Array, bits: int, streams: Sequence[int]) -> Array:
    """Values [count·size] float32 of a tile from its own scales [count] and levels, packed; `streams` as they were."""
    x = LEVELS[bits][_unpack(packed, bits)].reshape(tile.count, tile.size)
    rotate(x, tile.start, streams, back=True)
    with np.errstate(over="ignore"):
        x *= scales[:, None]
    return x.reshape(-1)


def rotate(x: Array, start: int, streams: Sequence[int], back: bool = False) -> None:
    """H·D·x of each row of x, float32 [count, size], for each of `streams`, in place; back: D·H·x, in reverse order.

    start: the place of the first element in its vector. By the native library where it is, else by NumPy: the same
    bits, some ten times slower.
    """
    library = available_library()
    if library is not None:
        signs = np.array(streams, np.uint64)
        count, size = x.shape
        library.call("pg_rotate", x.ctypes.data, count, size, start, signs.ctypes.data, len(signs), back)
        return
    for stream in reversed(streams) if back else streams:
        if back:
            _with_signs(_hadamard(x), stream, start)
        else:
            _hadamard(_with_signs(x, stream, start))


def _with_signs(x: Array, stream: int, start: int) -> Array:
    """D·x in place: element i of the vector changes sign where bit i mod 64 of word i div 64 is set."""
    words = random_words(stream, start // WORD, x.size // WORD)
    bits = np.unpackbits(words.astype("<u8", copy=False).view("u1"), bitorder="little")
    x.reshape(-1).view("u4")[:] ^= bits.astype("u4") << np.uint32(31)
    return x


def _hadamard(x: Array) -> Array:
    """H·x of each row, in place: butterflies of stride 64, 128, ... up to half a row, then 1, 2, ... 32."""
    count, size = x.shape
    _butterflies(x.reshape(count, size // WORD, WORD))
    turned = np.ascontiguousarray(x.reshape(count, size // WORD, WORD).swapaxes(1, 2))
    _butterflies(turned)
    x.reshape(count, size // WORD, WORD)[:] = turned.swapaxes(1, 2)
    return x


def _butterflies(x: Array) -> None:
    """Along the middle axis, in place; x [count, power of two, inner] is contiguous."""
    count, size, inner = x.shape
    stride = 1
    while stride < size:
        pairs = x.reshape(count, size // (2 * stride), 2, stride * inner)
        first, second = pairs[:, :, 0], pairs[:, :, 1]
        total = first + second
        np.subtract(first, second, out=second)
        first[:] = total
        stride *= 2


def _nearest(y: Array, sigma: Array, bits: int) -> Array:
    """Number of the level nearest to y/sigma: how many thresholds lie below y."""
    levels = LEVELS[bits].astype(np.float64)
    numbers = np.zeros(y.shape, "u1")
    for threshold in (levels[1:] + levels[:-1]) / 2:
        numbers += y > (threshold * sigma).astype(np.float32)[:, None]
    return numbers


def _pack(numbers: Array, bits: int) -> Array:
    """Levels as bytes, the first in the low bits."""
    each = numbers.reshape(-1, 8 // bits)
    packed = each[:, 0].copy()
    for place in range(1, 8 // bits):
        packed |= each[:, place] << np.uint8(place * bits)
    return packed


def _unpack(packed: Array, bits: int) -> Array:
    numbers = np.empty((len(packed), 8 // bits), "u1")
    for place in range(8 // bits):
        np.right_shift(packed, place * bits, out=numbers[:, place])
    numbers &= np.uint8((1 << bits) - 1)
    return numbers
