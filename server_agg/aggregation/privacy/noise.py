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
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, tile_ranges

KEY_BYTES = 32
DOMAIN = b"phonograd-noise-v1"
# Noise is computed in blocks at multiples of this, so that it depends on the position and not on the tiles.
BLOCK = 1 << 15
_UNIT = 2.0**-53


class Normals(Protocol):
    """Normal numbers for every position of every tensor."""

    def normals(self, tensor: str, start: int, stop: int) -> Array:
        """Those of elements [start, stop) of a tensor, float64, newly made."""
        ...


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
        """N(0, 1) for elements [start, stop) of a tensor, float64. |x| is at most 8.6 (53-bit uniform numbers)."""
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
        bits = np.frombuffer(digest.digest(8 * BLOCK), "<u8").astype(np.uint64) >> np.uint64(11)
        uniform = bits.astype(np.float64)
        radius, angle = uniform[: BLOCK // 2], uniform[BLOCK // 2 :]
        radius += 1  # (0, 1]: its logarithm is finite
        radius *= _UNIT
        np.log(radius, out=radius)
        radius *= -2
        np.sqrt(radius, out=radius)
        angle *= 2 * math.pi * _UNIT
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
    for name, spec in base.specs.items():
        for start, stop in tile_ranges(spec.elements):
            if name in frozen:
                yield next(tiles)
                continue
            added = noise.normals(name, start, stop)
            added *= std[name]
            if integer:
                np.rint(added, out=added)
            added += next(tiles)
            yield added
