"""Adaptive clipping (Andrew et al. 2021): the norm bound S follows a quantile of the phones' norms.

How many phones were below the bound is itself private: the count gets noise, and its share of the privacy is paid for
by more noise on the deltas, so that both together cost what the deltas alone would.
"""

import math
from dataclasses import dataclass

RATE = 0.2  # of the bound's geometric update: the paper's eta_C
SMALLEST, LARGEST = 1e-6, 1e6
_GRID = 1 << 20  # steps of the count and its noise: with finer ones its low bits could reveal the count


@dataclass(frozen=True)
class AdaptiveClip:
    """quantile: gamma, the share of phones whose norm is to be below S; phones: m = qN, expected in a round;
    noise_multiplier: z of deltas and count together.
    """

    quantile: float
    phones: float
    noise_multiplier: float

    @property
    def count_sensitivity(self) -> float:
        """How far one phone moves the count, to which it adds 1 - gamma or -gamma: max(gamma, 1 - gamma)."""
        return max(self.quantile, 1 - self.quantile)

    @property
    def count_std(self) -> float:
        """sigma_b: m/20 as in the paper; at least 2 z x sensitivity, so that a small round spends no more than a
        quarter on it.
        """
        z = self.noise_multiplier
        return max(self.phones / 20, 2 * z * self.count_sensitivity) if z > 0 else 0.0

    @property
    def delta_noise_multiplier(self) -> float:
        """z_delta = (z^-2 - (sigma_b / sensitivity)^-2)^(-1/2)."""
        z = self.noise_multiplier
        return z / math.sqrt(1 - (z * self.count_sensitivity / self.count_std) ** 2) if z > 0 else 0.0

    def next_bound(self, bound: float, phones: int, unclipped: int, normal: float) -> float:
        """S exp(-RATE b), where b is the noised sum of 1[norm <= S] - gamma over the `phones` that took part, divided
        by m.

        normal: a number drawn from N(0, 1). Unlike the paper's, this sum is 0 at the quantile of those who took part,
        however many phones are missing; m is public.
        """
        # Whole steps, so that no low bit tells how many phones there were.
        steps = unclipped * _GRID - phones * round(self.quantile * _GRID) + round(normal * self.count_std * _GRID)
        moved = steps / _GRID / self.phones
        # A far outlier of the noise moves the bound by a factor of 2 at most.
        factor = math.exp(max(-math.log(2), min(math.log(2), -RATE * moved)))
        return min(LARGEST, max(SMALLEST, bound * factor))
