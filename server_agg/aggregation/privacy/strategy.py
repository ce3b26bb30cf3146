"""DP-FedAvg and DP-FedSGD (McMahan et al., paper M, Algorithm 1): clipped deltas, a mean of known sensitivity, noise.

They differ only on the phone, in an epoch or a single step. rounds/privacy.py samples phones and counts epsilon.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from phonograd.device_runtime.formats.tensor_file import Array, TensorFile
from phonograd.device_runtime.update.update_file import UpdateInfo
from phonograd.server_agg.aggregation.fold import FRACTION_BITS, Fold
from phonograd.server_agg.aggregation.norms import norms_of
from phonograd.server_agg.aggregation.privacy.adaptive_clip import AdaptiveClip, bound_of, metadata_of
from phonograd.server_agg.aggregation.privacy.mechanism import GaussianMean, clip_factors, scaled_max_abs
from phonograd.server_agg.aggregation.privacy.noise import NoiseStream, add_noise
from phonograd.server_agg.aggregation.settings import StrategySettings
from phonograd.server_agg.aggregation.strategy import (
    NORM,
    UNLIMITED,
    ClientUpdate,
    Measures,
    RoundContext,
    check_claims,
    norms_in,
)
from phonograd.server_agg.aggregation.tile_source import TileSource

STEPS_PER_UNIT = 2.0**FRACTION_BITS
# A weight of 1 is this many integer steps of 2**-20.
WEIGHT_STEPS = 1 << 20


@dataclass(frozen=True)
class PrivateAveraging:
    """dp-fedavg and dp-fedsgd. Weights are integers in steps of 2**-20."""

    settings: StrategySettings
    min_updates: int = 1
    max_updates: int = UNLIMITED

    @property
    def name(self) -> str:
        """dp-fedavg or dp-fedsgd."""
        return self.settings.strategy

    def weight(self, info: UpdateInfo) -> int:
        """w_k in steps of 2**-20. Raises what `check_claims` raises."""
        return capped_weight(self.settings, info)

    def begin(self, base: TensorFile, base_sha256: str, context: RoundContext) -> "PrivateMean":
        """Needs a fold: one int64 per parameter. Raises ValueError for a population below 1 or an invalid key."""
        if context.population < 1:
            raise ValueError(f"population is {context.population}, expected at least 1 enrolled phone")
        settings, fold = self.settings, Fold(base, base_sha256)
        noise = NoiseStream(context.noise_key, context.number, "dp")
        if settings.adaptive_clip is None:
            return PrivateMean(settings, fold, mechanism_of(settings, context.population), noise)
        expected = settings.sampling * context.population
        clip = AdaptiveClip(settings.adaptive_clip, expected, settings.noise_multiplier)
        settings = replace(settings, clip_norm=bound_of(base, settings.clip_norm))
        mechanism = replace(mechanism_of(settings, context.population), noise_multiplier=clip.delta_noise_multiplier)
        normal = float(NoiseStream(context.noise_key, context.number, "clip").normals("count", 0, 1)[0])
        return AdaptiveMean(settings, fold, mechanism, noise, clip, normal)


def capped_weight(settings: StrategySettings, info: UpdateInfo) -> int:
    """Paper M's w_k = min(tokens / w-hat, 1), or 1 without a cap; in steps of 2**-20, rounded down, at least one.

    Raises what `check_claims` raises.
    """
    check_claims(settings, info)
    if settings.token_cap is None:
        return WEIGHT_STEPS
    return max(1, min(WEIGHT_STEPS, info.tokens * WEIGHT_STEPS // settings.token_cap))


def mechanism_of(settings: StrategySettings, population: int) -> GaussianMean:
    """The round's mechanism for `population` enrolled phones, N: W = N x mean_weight."""
    return GaussianMean(
        clip_norm=settings.clip_norm,
        estimator=settings.estimator,
        sampling=settings.sampling,
        population_weight=population * settings.mean_weight,
        min_share=settings.min_share,
        noise_multiplier=settings.noise_multiplier,
    )


class PrivateMean:
    """Clips, weights and sums updates as they arrive; adds noise at the close."""

    def __init__(self, settings: StrategySettings, fold: Fold, mechanism: GaussianMean, noise: NoiseStream):
        self._settings = settings
        self._fold = fold
        self._mechanism = mechanism
        self._noise = noise
        self._weight = 0  # in steps of 2**-20

    def measure(self, update: TileSource) -> dict[str, float]:
        """Each tensor's L2 norm. Raises WeightsError for values that are not finite."""
        return {NORM + name: norm for name, norm in norms_of(update, self._fold.base).items()}

    def add(self, update: TileSource, weight: int, measures: Measures) -> None:
        """Clip, weight and fold, with steps rounded towards zero, so that no norm grows."""
        norms = norms_in(measures)
        share = weight / WEIGHT_STEPS
        clips = clip_factors(norms, self._settings.clip_norm, self._settings.per_layer)
        scales = {name: clip * share for name, clip in clips.items()}
        self._fold.accumulate(update, 1, scaled_max_abs(norms, scales), scales)
        self._weight += weight

    def deltas(self, updates: Sequence[ClientUpdate]) -> Iterator[Array]:
        """(sum of w x clipped delta + noise) / divisor, with integer noise, like the sum. Also without updates."""
        del updates
        # The noise of the sum: z x sensitivity after the division. For f_f this is z x S for any set of phones.
        divisor = self._mechanism.divisor(self._weight / WEIGHT_STEPS)
        std = self._mechanism.noise_std * divisor * STEPS_PER_UNIT
        steps = add_noise(
            self._fold.deltas(1 / STEPS_PER_UNIT),
            self._fold.base,
            self._noise,
            dict.fromkeys(self._fold.base.specs, std),
            integer=True,
        )
        return (tile / (divisor * STEPS_PER_UNIT) for tile in steps)


class AdaptiveMean(PrivateMean):
    """A private mean that also counts the phones below the bound, for the next round's.

    settings: with this round's bound; normal: the noise of the count, from N(0, 1).
    """

    def __init__(
        self,
        settings: StrategySettings,
        fold: Fold,
        mechanism: GaussianMean,
        noise: NoiseStream,
        clip: AdaptiveClip,
        normal: float,
    ):
        super().__init__(settings, fold, mechanism, noise)
        self._clip = clip
        self._normal = normal
        self._phones = self._unclipped = 0

    def add(self, update: TileSource, weight: int, measures: Measures) -> None:
        """As PrivateMean.add, and count."""
        super().add(update, weight, measures)
        clips = clip_factors(norms_in(measures), self._settings.clip_norm, per_layer=False)
        self._phones += 1
        self._unclipped += all(clip == 1 for clip in clips.values())

    def metadata(self) -> dict[str, str]:
        """The bound of the next round. It is as private as the model that carries it."""
        bound = self._clip.next_bound(self._settings.clip_norm, self._phones, self._unclipped, self._normal)
        return metadata_of(bound)
