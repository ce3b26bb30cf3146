"""Random bits that are the same in every language: SplitMix64, and a stream for each name. FORMAT.md, "Updates".

Draws by different names and seeds are independent. They keep nothing secret unless the seed is secret.
"""

import zlib
from typing import TypeVar

import numpy as np
import numpy.typing as npt

_GAMMA = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_MASK = (1 << 64) - 1

Item = TypeVar("Item")


class SplitMix64:
    """Steele, Lea and Flood's generator: 64 bits of state, the same numbers in every language."""

    def __init__(self, seed: int):
        self._state = seed & _MASK

    def next(self) -> int:
        """The next 64-bit number."""
        self._state = (self._state + _GAMMA) & _MASK
        z = self._state
        z = ((z ^ (z >> 30)) * _FIRST) & _MASK
        z = ((z ^ (z >> 27)) * _SECOND) & _MASK
        return z ^ (z >> 31)

    def below(self, bound: int) -> int:
        """A number in [0, bound): the high word of next() · bound."""
        return (self.next() * bound) >> 64

    def shuffle(self, items: list[Item]) -> None:
        """Fisher and Yates's shuffle, in place, from the last place down."""
        for last in range(len(items) - 1, 0, -1):
            other = self.below(last + 1)
            items[last], items[other] = items[other], items[last]


def stream_of(seed: int, name: str) -> int:
    """The state that a name's stream starts from: the first number from seed xor (CRC-32 of the name, times 2^32)."""
    return SplitMix64(seed ^ (zlib.crc32(name.encode()) << 32)).next()


def random_words(stream: int, first: int, count: int) -> npt.NDArray[np.uint64]:
    """Numbers [first, first + count) of a stream, uint64: those that SplitMix64(stream) gives one after the other."""
    z = np.arange(first + 1, first + 1 + count, dtype=np.uint64)
    z *= np.uint64(_GAMMA)
    z += np.uint64(stream)
    z ^= z >> np.uint64(30)
    z *= np.uint64(_FIRST)
    z ^= z >> np.uint64(27)
    z *= np.uint64(_SECOND)
    z ^= z >> np.uint64(31)
    return z


def uniform_numbers(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Numbers in [0, 1): the upper 53 bits of each word by 2^53."""
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
