"""Paper M's Algorithm 1: sampling, clipping, sensitivity and the standard deviation of the noise.

User-level differential privacy: neighbouring datasets differ by one phone.
"""

import math
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from phonograd.server_agg.aggregation.settings import StrategySettings

_SAMPLE_BITS = 53
# Norms are summed in float64, and scaling a delta rounds once more: clipping to a billionth less keeps the result below
# the bound in spite of rounding.
CLIP_MARGIN = 1 - 2.0**-30


def poisson_sample(names: Iterable[str], probability: float) -> list[str]:
    """Poisson sampling: each name with `probability`, independent of all others and of earlier rounds; sorted.

    Uses the operating system's cryptographic random source: against an attacker who can predict the sample, sampling
    does not amplify privacy. Raises ValueError unless 0 < probability <= 1.
    """
    if not 0 < probability <= 1:
        raise ValueError(f"sampling is {probability}, expected more than 0, at most 1")
    threshold = math.ceil(probability * (1 << _SAMPLE_BITS))
    return sorted(name for name in names if secrets.randbits(_SAMPLE_BITS) < threshold)


def clip_factors(norms: Mapping[str, float], clip_norm: float, per_layer: bool) -> dict[str, float]:
    """Each tensor's factor, at most 1, so that the L2 norm of all tensors together is at most `clip_norm`.

    norms: each tensor's L2 norm. Flat (paper M, section 2): min(1, S / norm of all). Per layer: min(1, S_l / its norm),
    S_l = S/sqrt(m), m tensors.
    """
    if per_layer:
        limit = clip_norm / math.sqrt(len(norms))
        return {name: _factor(norm, limit) for name, norm in norms.items()}
    return dict.fromkeys(norms, _factor(math.sqrt(math.fsum(norm * norm for norm in norms.values())), clip_norm))


def scaled_max_abs(norms: Mapping[str, float], scales: Mapping[str, float]) -> float:
    """An upper bound on every |scaled delta|: no element exceeds its tensor's norm."""
    return max((norm * scales[name] for name, norm in norms.items()), default=0.0)


def _factor(norm: float, limit: float) -> float:
    return 1.0 if norm <= limit * CLIP_MARGIN else limit * CLIP_MARGIN / norm


@dataclass(frozen=True)
class GaussianMean:
    """The Gaussian mechanism of one round (paper M, Algorithm 1), of phones whose weight is at most 1.

    population: enrolled phones, N, a public constant; noise_multiplier: z.
    """

    settings: StrategySettings
    population: int
    noise_multiplier: float

    @property
    def _expected_weight(self) -> float:
        """qW, where W = N x mean_weight is the total weight of all phones."""
        return self.settings.sampling * (self.population * self.settings.mean_weight)

    def divisor(self, weight: float) -> float:
        """The divisor of the sum of w x delta; `weight` is the sum of w. f_f: qW. f_c: max(qW_min, sum of w)."""
        expected = self._expected_weight
        return expected if self.settings.estimator == "fixed" else max(expected * self.settings.min_share, weight)

    @property
    def sensitivity(self) -> float:
        """How far one phone can move the mean, in L2: S/(qW) for f_f, 2S/(qW_min) for f_c (Lemma 1)."""
        expected, bound = self._expected_weight, self.settings.clip_norm
        if self.settings.estimator == "fixed":
            return bound / expected
        return 2 * bound / (expected * self.settings.min_share)

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise on each element of the mean: z x sensitivity."""
        return self.noise_multiplier * self.sensitivity
