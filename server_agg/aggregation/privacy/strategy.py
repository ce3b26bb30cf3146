"""DP-FedAvg and DP-FedSGD (McMahan et al., paper M, Algorithm 1): clipped deltas, a mean of known sensitivity, noise.

They differ only on the phone, in an epoch or a single step. rounds/privacy.py samples phones and counts epsilon.
"""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from phonograd.device_runtime.formats.tensor_file import Array, TensorFile
from phonograd.server_agg.aggregation.privacy.adaptive_clip import AdaptiveClip
from phonograd.server_agg.aggregation.privacy.clipped_sum import STEPS_PER_UNIT, ClippedSum
from phonograd.server_agg.aggregation.privacy.mechanism import GaussianMean
from phonograd.server_agg.aggregation.privacy.noise import NoiseStream, add_noise
from phonograd.server_agg.aggregation.settings import StrategySettings
from phonograd.server_agg.aggregation.strategy import (
    WEIGHT_STEPS,
    ClientUpdate,
    RoundContext,
)

BOUND = "clip_norm"  # in the metadata of a model: the bound of the round that starts from it


class PrivateMean(ClippedSum):
    """Adds noise to the sum at the close.

    With adaptive clipping it also counts the phones below the bound, for the next round's. Raises ValueError for a
    population below 1 or an invalid key.
    """

    def __init__(self, settings: StrategySettings, base: TensorFile, base_sha256: str, context: RoundContext):
        if context.population < 1:
            raise ValueError(f"population is {context.population}, expected at least 1 enrolled phone")
        if settings.adaptive_clip is not None:
            settings = replace(settings, clip_norm=float(base.metadata.get(BOUND, settings.clip_norm)))
        super().__init__(settings, base, base_sha256, context)
        self._noise = NoiseStream(context.noise_key, context.number, "dp")
        noise_multiplier = settings.noise_multiplier
        self._clip: AdaptiveClip | None = None
        if settings.adaptive_clip is not None:
            expected = settings.sampling * context.population
            self._clip = AdaptiveClip(settings.adaptive_clip, expected, noise_multiplier)
            noise_multiplier = self._clip.delta_noise_multiplier
        self._mechanism = GaussianMean(settings, context.population, noise_multiplier)

    def deltas(self, updates: Sequence[ClientUpdate]) -> Iterator[Array]:
        """(sum of w x clipped delta + noise) / divisor, with integer noise, like the sum. Also without updates."""
        del updates
        # The noise of the sum: z x sensitivity after the division. For f_f this is z x S for any set of phones.
        divisor = self._mechanism.divisor(self.weight / WEIGHT_STEPS)
        std = dict.fromkeys(self.base.specs, self._mechanism.noise_std * divisor * STEPS_PER_UNIT)
        steps = add_noise(self.fold.deltas(1 / STEPS_PER_UNIT), self.base, self._noise, std, integer=True)
        return (tile / (divisor * STEPS_PER_UNIT) for tile in steps)

    def metadata(self) -> dict[str, str]:
        """The bound of the next round. It is as private as the model that carries it."""
        if self._clip is None:
            return {}
        normal = NoiseStream(self.context.noise_key, self.context.number, "clip").normals("count", 0, 1)[0]
        bound = self._clip.next_bound(self.settings.clip_norm, self.phones, self.unclipped, float(normal))
        return {BOUND: repr(bound)}
