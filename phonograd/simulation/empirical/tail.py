"""The tail of a likelihood ratio, and the epsilon and delta that follow from it (paper P, section on privacy).

c(s) = P(s | θ) / P(s | θ') for texts s drawn from θ, where θ and θ' were trained by adjacent sets of users. If the tail
is P(c > x) = C x^-α, then the model is (epsilon, delta) differentially private, empirically, for epsilon =
(1 / α) log(C / delta).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phonograd.device_runtime.base.errors import TrainingError
from phonograd.device_runtime.text.sampling import Doubles

# Lilliefors' 5 % critical value of sqrt(k) times the statistic, which the paper uses.
CRITICAL_VALUE = 1.08
LEAST_SAMPLES = 100


@dataclass(frozen=True)
class Tail:
    """A fitted tail. alpha: Hill's estimate; C; statistic: sqrt(k) times Lilliefors' distance from the exponential
    distribution; samples: n; used: k, the largest ratios that were fitted.
    """

    alpha: float
    C: float
    statistic: float
    samples: int
    used: int

    @property
    def passes(self) -> bool:
        """Whether Lilliefors' test does not reject a Pareto tail at 5 %."""
        return self.statistic < CRITICAL_VALUE

    def epsilon(self, delta: float) -> float:
        """The empirical epsilon at `delta`."""
        return epsilon_of(self.alpha, self.C, delta)


def epsilon_of(alpha: float, C: float, delta: float) -> float:
    """(1 / α) log(C / delta); at least 0."""
    return max(0.0, math.log(C / delta) / alpha)


def fit_tail(log_ratios: Doubles) -> Tail:
    """Fit the tail of c from log c of n texts: k = 2 floor(sqrt n), r_i = log(c_(i) / c_(k)) for the k largest.

    Raises TrainingError for fewer than LEAST_SAMPLES ratios, for one that is not finite, or if the largest ones are all
    alike, as for two equal models.
    """
    n = len(log_ratios)
    if n < LEAST_SAMPLES or not np.isfinite(log_ratios).all():
        raise TrainingError(f"likelihood ratios: at least {LEAST_SAMPLES} finite ones expected, found {n}")
    k = 2 * math.isqrt(n)
    largest = np.sort(log_ratios)[::-1][:k]
    r = largest - largest[-1]
    # The paper divides by k, though r_k is 0. By k - 1, 1 / α is unbiased, and epsilon at most 0.3 % larger.
    mean = float(r[:-1].mean())
    if mean <= 0:
        raise TrainingError("likelihood ratios: the largest are all alike; are the models of adjacent sets the same?")
    alpha = 1 / mean
    return Tail(alpha, k / n * math.exp(alpha * float(largest[-1])), lilliefors(r[:-1]), n, k)


def lilliefors(values: Doubles) -> float:
    """sqrt(n) sup |F_n - F|, F the exponential distribution with the mean of the n values."""
    ordered = np.sort(values)
    n = len(ordered)
    expected = -np.expm1(-ordered / ordered.mean())
    steps = np.arange(n + 1) / n
    return math.sqrt(n) * float(max((steps[1:] - expected).max(), (expected - steps[:-1]).max()))


# Paper P, Table 7: alpha and C of its 20 pairs.
_ALPHA = (
    *(15.8, 20.9, 15.1, 16.6, 16.5, 17.6, 14.9, 19.2, 15.6, 15.2),
    *(16.5, 14.4, 19.5, 18.2, 16.2, 17.2, 17.3, 14.8, 17.1, 20.5),
)
_C = (
    *(3.25, 5.64, 2.02, 2.48, 2.70, 4.19, 1.47, 3.31, 1.65, 1.83),
    *(3.00, 1.53, 3.67, 2.20, 3.42, 2.66, 1.68, 2.18, 2.87, 4.60),
)
PAPER_TABLE_7 = list(zip(_ALPHA, _C, strict=True))
DELTAS = (1e-4, 1e-5, 1e-6)


def worst_epsilons(tails: Sequence[tuple[float, float]]) -> list[float]:
    """The largest epsilon over pairs (alpha, C), at each delta (paper P, Table 8)."""
    return [max(epsilon_of(alpha, C, delta) for alpha, C in tails) for delta in DELTAS]
