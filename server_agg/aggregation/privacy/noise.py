"""Deterministic Gaussian noise: a function of key, round, tensor and position.

SHAKE-256 expands the key, and Box-Muller turns its bits into normal numbers, in float64. So a round that is closed
again after a crash gets the same noise (two different noises of one sum could be averaged), and once the key is deleted
nobody can compute it.
"""

import hashlib
import math
import struct
from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy as np

from phonograd.device_runtime.formats.frozen import frozen_in
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, all_tiles

KEY_BYTES = 32
DOMAIN = b"phonograd-noise-v1"
# Noise is computed in blocks at multiples of this, so that it depends on the position and not on the tiles.
BLOCK = 1 << 15
# A pair of numbers beyond the end has this chance, 2**-END_BITS: what a Gaussian has and this noise has not.
END_BITS = 128


def delta_of_end(parameters: int, rounds: int, epsilon: float) -> float:
    """What it adds to delta that noise ends, where a Gaussian does not. Infinite if epsilon is."""
    return math.inf if epsilon > 700 else math.exp(epsilon) * rounds * parameters / 2 * 2.0**-END_BITS


class Normals(Protocol):
    """Normal numbers for every position of every tensor."""

    def normals(self, tensor: str, start: int, stop: int) -> Array:
        """Normals of elements [start, stop) of a tensor, float64, newly made."""


class NoiseStream:
    """Standard normal numbers for every position of every tensor of one round.

    purpose: separates independent streams of the same key. Raises ValueError unless the key has 32 bytes.
    """

    def __init__(self, key: bytes, round_number: int, purpose: str):
        if len(key) != KEY_BYTES:
            raise ValueError(f"noise_key has {len(key)} bytes, expected {KEY_BYTES} from a cryptographic source")
        fields = (key, DOMAIN, purpose.encode(), struct.pack("<Q", round_number))
        self._prefix = b"".join(struct.pack("<I", len(field)) + field for field in fields)

    def normals(self, tensor: str, start: int, stop: int) -> Array:
        """N(0, 1) for elements [start, stop) of a tensor, float64. |x| is at most 13.4, see END_BITS."""
        out = np.empty(stop - start, np.float64)
        for block in range(start // BLOCK, -(-stop // BLOCK)):
            numbers = self._block(tensor, block)
            first = block * BLOCK
            low, high = max(start, first), min(stop, first + BLOCK)
            out[low - start : high - start] = numbers[low - first : high - first]
        return out

    def _block(self, tensor: str, block: int) -> Array:
        name = tensor.encode()
        digest = hashlib.shake_256(self._prefix + struct.pack("<I", len(name)) + name + struct.pack("<Q", block))
        words = np.frombuffer(digest.digest(8 * BLOCK + 8), "<u8")
        radius, angle = words[: BLOCK // 2].astype(np.float64), (words[BLOCK // 2 : BLOCK] >> 11).astype(np.float64)
        # (0, 1]. Its end is where the noise would be unlike a Gaussian: where 64 bits are all 0, 64 more say how small.
        radius[radius == 0] = (float(words[BLOCK]) + 1) * 2.0**-64
        radius *= 2.0**-64
        np.log(radius, out=radius)
        radius *= -2
        np.sqrt(radius, out=radius)
        angle *= 2 * math.pi * 2.0**-53
        numbers = np.empty(BLOCK, np.float64)
        np.multiply(radius, np.cos(angle), out=numbers[: BLOCK // 2])
        np.multiply(radius, np.sin(angle), out=numbers[BLOCK // 2 :])
        return numbers


def add_noise(
    tiles: Iterator[Array], base: TensorFile, noise: Normals, std: Mapping[str, float], integer: bool = False
) -> Iterator[Array]:
    """float64 tiles in the base's file order, with `noise` x std added to each element; `std` by tensor.

    Frozen tensors get no noise.

    integer: round the noise to integers. If the tiles are integers too, the result is a rounded sum with real-valued
    noise, and its low bits reveal nothing about the tiles (Mironov 2012).
    """
    frozen = frozen_in(base)
    for name, start, stop in all_tiles(base.specs):
        if name in frozen:
            yield next(tiles)
            continue
        added = noise.normals(name, start, stop)
        added *= std[name]
        if integer:
            np.rint(added, out=added)
        added += next(tiles)
        yield added
