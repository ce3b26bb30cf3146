"""Random bits of the codecs: SplitMix64, a stream for each tensor of an update. FORMAT.md, "Random numbers of codecs".

They make quantisation errors independent of the values and of other phones' errors; they keep nothing secret.
"""

import zlib

import numpy as np

from phonograd.device_runtime.formats.tensor_file import Array
from phonograd.device_runtime.text.rehearsal import SplitMix64

_GAMMA = 0x9E3779B97F4A7C15
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def stream_of(seed: int, tensor: str) -> int:
    """The state that a tensor's stream starts from: the first number from seed xor (CRC-32 of the name, times 2^32)."""
    return SplitMix64(seed ^ (zlib.crc32(tensor.encode()) << 32)).next()


def random_words(stream: int, first: int, count: int) -> Array:
    """Numbers [first, first + count) of a stream, uint64: those that SplitMix64(stream) gives one after the other."""
    z = np.arange(first + 1, first + 1 + count, dtype=np.uint64)
    z *= np.uint64(_GAMMA)
    z += np.uint64(stream)
    z ^= z >> np.uint64(30)
    z *= _FIRST
    z ^= z >> np.uint64(27)
    z *= _SECOND
    z ^= z >> np.uint64(31)
    return z
