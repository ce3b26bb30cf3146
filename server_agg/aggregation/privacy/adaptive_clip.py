"""Adaptive clipping (Andrew et al. 2021): the norm bound S follows a quantile of the phones' norms.

How many phones were below the bound is itself private: the count gets noise, and its share of the privacy is paid for
by more noise on the deltas, so that both together cost what the deltas alone would.
"""

import math
from dataclasses import dataclass

from phonograd.device_runtime.formats.tensor_file import TensorFile

RATE = 0.2  # of the bound's geometric update: the paper's eta_C
SMALLEST, LARGEST = 1e-6, 1e6
_KEY = "clip_norm"  # in the metadata of a model: the bound of the round that starts from it
_GRID = 2.0**20  # steps of the count's noise: with finer ones its low bits could reveal the count


@dataclass(frozen=True)
class AdaptiveClip:
    """quantile: gamma, the share of phones whose norm is to be below S; phones: m = qN, expected in a round;
    noise_multiplier: z of deltas and count together.
    """

    quantile: float
    phones: float
    noise_multiplier: float

    @property
    def count_std(self) -> float:
        """sigma_b: m/20 as in the paper; at least z, so that a small round spends no more than a quarter on it."""
        return max(self.phones / 20, self.noise_multiplier) if self.noise_multiplier > 0 else 0.0

    @property
    def delta_noise_multiplier(self) -> float:
        """z_delta = (z^-2 - (2 sigma_b)^-2)^(-1/2). A phone moves the count, which adds 1/2 or -1/2, by 1/2 at most."""
        z = self.noise_multiplier
        return z / math.sqrt(1 - (z / (2 * self.count_std)) ** 2) if z > 0 else 0.0

    def next_bound(self, bound: float, phones: int, unclipped: int, normal: float) -> float:
        """S exp(-RATE (b - gamma)), where b is the noised share of `unclipped` among the `phones` that took part.

        normal: a number drawn from N(0, 1). b's divisor is m, which is public, so missing phones draw b towards 1/2.
        """
        noise = round(normal * self.count_std * _GRID) / _GRID
        share = (unclipped - phones / 2 + noise) / self.phones + 0.5
        # A far outlier of the noise moves the bound by a factor of 2 at most.
        factor = math.exp(max(-math.log(2), min(math.log(2), -RATE * (share - self.quantile))))
        return min(LARGEST, max(SMALLEST, bound * factor))


def bound_of(model: TensorFile, first: float) -> float:
    """The bound of the round that starts from this model; `first` if no round with adaptive clipping made it."""
    return float(model.metadata.get(_KEY, first))


def metadata_of(bound: float) -> dict[str, str]:
    """The metadata of a model from which a round with this bound starts."""
    return {_KEY: repr(bound)}
