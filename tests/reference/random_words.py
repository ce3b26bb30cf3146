"""SplitMix64, its streams by name, and chances in proportion to sizes. FORMAT.md, "Updates"."""

import math
import zlib

import numpy as np
import numpy.typing as npt

MASK = (1 << 64) - 1
Floats = npt.NDArray[np.float64]


class SplitMix64:
    """64 bits of state."""

    def __init__(self, seed: int):
        self.state = seed & MASK

    def next(self) -> int:
        """The next 64-bit number."""
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    def below(self, bound: int) -> int:
        """A number in [0, bound)."""
        return (self.next() * bound) >> 64


def stream_of(seed: int, name: str) -> SplitMix64:
    """The numbers of a name."""
    return SplitMix64(SplitMix64(seed ^ (zlib.crc32(name.encode()) << 32)).next())


def words_of(seed: int, name: str, count: int) -> list[int]:
    """The first `count` numbers of a name's stream."""
    stream = stream_of(seed, name)
    return [stream.next() for _ in range(count)]


def uniform(word: int) -> float:
    """A number in [0, 1) of a word's upper 53 bits."""
    return (word >> 11) * 2.0**-53


def inclusion_chances(sizes: list[float], count: int) -> list[float]:
    """Chances that sum to `count`, 1 of the largest sizes and of the others in proportion."""
    if len(sizes) <= count:
        return [1.0] * len(sizes)
    order = sorted(range(len(sizes)), key=lambda place: (-sizes[place], place))
    rest, total = [0.0] * len(sizes), 0.0  # of this size and all smaller ones, added from the smallest
    for rank in range(len(sizes) - 1, -1, -1):
        total += sizes[order[rank]]
        rest[rank] = total
    sure = next((rank for rank in range(count) if sizes[order[rank]] * (count - rank) < rest[rank]), count)
    chances = [1.0] * len(sizes)
    for place in order[sure:]:
        chances[place] = sizes[place] * ((count - sure) / rest[sure]) if sure < count else 0.0
    return chances


def logarithm(number: float) -> float:
    """The natural logarithm of a number above 0, by the operations that FORMAT.md names."""
    mantissa, exponent = math.frexp(number)
    if mantissa < 0.7071067811865476:
        mantissa, exponent = 2 * mantissa, exponent - 1
    t = (mantissa - 1) / (mantissa + 1)
    series = 1 / 23
    for term in range(21, 0, -2):
        series = series * (t * t) + 1 / term
    return 2 * t * series + exponent * 0.6931471805599453
