"""Noise buffers are sealed: XOR with bits of a key that is kept apart from their file, and deleted with it.

Two rounds' buffers tell the noise of the second: copies of the files must be as useless as those of a deleted key.
"""

import hashlib
import struct

import numpy as np

from phonograd.device_runtime.formats.tensor_file import Array

DOMAIN = b"phonograd-buffers-seal-v1"
BLOCK = 1 << 15  # numbers; the bits depend on the position, not on the tiles


def seal_of(noise_key: bytes) -> bytes:
    """The seal of a round's buffers: of its noise key, so that a round that is closed again writes the same bytes."""
    return hashlib.sha256(DOMAIN + noise_key).digest()


def apply_seal(numbers: Array, seal: bytes | None, tensor: str, start: int) -> Array:
    """float64 numbers from position `start` of a tensor on, sealed in place; or opened, if they were. None: as is."""
    if seal is None:
        return numbers
    bits, stop = numbers.reshape(-1).view(np.uint64), start + numbers.size
    for block in range(start // BLOCK, -(-stop // BLOCK)):
        first = block * BLOCK
        stream = hashlib.shake_256(seal + struct.pack("<Q", block) + tensor.encode())
        words = np.frombuffer(stream.digest(8 * BLOCK), "<u8")
        low, high = max(start, first), min(stop, first + BLOCK)
        bits[low - start : high - start] ^= words[low - first : high - first]
    return numbers
