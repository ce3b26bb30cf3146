"""Paper M's estimators of the mean clipped delta, how far one phone can move each, and the noise that hides it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class GaussianMean:
    """The Gaussian mechanism of one round (paper M, Algorithm 1).

    clip_norm: S, no phone's delta is longer, and no weight is above 1; estimator `fixed` or `clipped`; sampling: q;
    population_weight: W, the weight of all phones, a public constant; min_share: W_min / W; noise_multiplier: z.
    """

    clip_norm: float
    estimator: str
    sampling: float
    population_weight: float
    min_share: float
    noise_multiplier: float

    def divisor(self, weight: float) -> float:
        """What the sum of w x delta is divided by, of phones whose weights sum to `weight`.

        f_f: qW. f_c: max(qW_min, sum of w).
        """
        expected = self.sampling * self.population_weight
        return expected if self.estimator == "fixed" else max(expected * self.min_share, weight)

    @property
    def sensitivity(self) -> float:
        """How far in L2 one phone more or less moves the mean: S/(qW) for f_f, 2S/(qW_min) for f_c (Lemma 1)."""
        expected = self.sampling * self.population_weight
        return (
            self.clip_norm / expected if self.estimator == "fixed" else 2 * self.clip_norm / (expected * self.min_share)
        )

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise on each element of the mean: z x sensitivity."""
        return self.noise_multiplier * self.sensitivity
