"""Exposure of a secret (Carlini et al. 2019, The Secret Sharer), by its rank and by extrapolation.

Both compare the secret's loss, -log2 P in bits, with those of all others of its form. A rank gives at most log2 of
their number; the extrapolation, a skew-normal distribution fitted to the losses, has no such limit.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]

# The largest skewness of a skew-normal distribution is 0.9953.
MOST_SKEWED = 0.99
_REACH, _POINTS = 12, 20_001  # of the integral below a loss: standard widths, and points


def rank_of(losses: Doubles, loss: float) -> int:
    """1 and the number of losses below that one."""
    return 1 + int(np.count_nonzero(losses < loss))


def exposure_of(rank: int, space: int) -> float:
    """log2 |R| - log2 rank."""
    return math.log2(space) - math.log2(rank)


@dataclass(frozen=True)
class SkewNormal:
    """Density 2/w φ(z) Φ(a z), z = (x - location) / w, for width w and shape a."""

    location: float
    width: float
    shape: float

    @classmethod
    def fit(cls, values: Doubles) -> "SkewNormal":
        """By the values' mean, standard deviation and skewness; values that are all alike have width 0."""
        mean, deviation = float(values.mean()), float(values.std())
        if deviation == 0:
            return cls(mean, 0, 0)
        skewness = float((((values - mean) / deviation) ** 3).mean())
        size = min(abs(skewness), MOST_SKEWED) ** (2 / 3)
        delta = math.copysign(math.sqrt(math.pi / 2 * size / (size + (2 - math.pi / 2) ** (2 / 3))), skewness)
        width = deviation / math.sqrt(1 - 2 * delta**2 / math.pi)
        return cls(mean - width * delta * math.sqrt(2 / math.pi), width, delta / math.sqrt(1 - delta**2))

    def log2_below(self, x: float) -> float:
        """log2 of the chance of a value of at most x. It is computed from logarithms, so that no x is too small."""
        if self.width == 0:
            return 0.0 if x >= self.location else -math.inf
        z = (x - self.location) / self.width
        points, step = np.linspace(min(z, 0) - _REACH, min(z, _REACH), _POINTS, retstep=True)
        logs = math.log(2 / math.sqrt(2 * math.pi)) - points**2 / 2 + _log_normal_below(self.shape * points)
        highest = logs.max()
        densities = np.exp(logs - highest)
        integral = step * (densities.sum() - (densities[0] + densities[-1]) / 2)
        return min(0.0, float(highest + math.log(integral)) / math.log(2))


def extrapolated(losses: Doubles, loss: float) -> float:
    """-log2 of the chance that a loss of the fitted distribution is at most that one, in bits."""
    return -SkewNormal.fit(losses).log2_below(loss)


def _log_normal_below(z: Doubles) -> Doubles:
    """log Φ(z); far below 0 by its asymptotic series."""
    far = np.minimum(z, -30)
    series = -(far**2) / 2 - np.log(-far * math.sqrt(2 * math.pi)) + np.log1p(-(far**-2.0))
    near = np.array([math.log(math.erfc(-max(value, -30) / math.sqrt(2)) / 2) for value in z.tolist()])
    return np.where(z < -30, series, near)
