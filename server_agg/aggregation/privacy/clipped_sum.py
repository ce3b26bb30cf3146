"""The sum of clipped deltas, which private strategies add noise to."""

from phonograd.device_runtime.formats.frozen import trained_specs
from phonograd.device_runtime.formats.tensor_file import TensorFile
from phonograd.device_runtime.update.update_file import DecodedUpdate
from phonograd.server_agg.aggregation.fold import FRACTION_BITS, Fold
from phonograd.server_agg.aggregation.privacy.mechanism import clip_factors, scaled_max_abs
from phonograd.server_agg.aggregation.settings import StrategySettings
from phonograd.server_agg.aggregation.strategy import (
    WEIGHT_STEPS,
    Aggregation,
    Measures,
    RoundContext,
    measured_norms,
    norms_in,
)

STEPS_PER_UNIT = 2.0**FRACTION_BITS


class ClippedSum(Aggregation):
    """Clips, weights and sums updates as they arrive, in a fold: one int64 per parameter.

    weight: of the updates so far, in steps of 2**-20; phones: how many; unclipped: those of them below the bound.
    """

    reads_at_close = False

    def __init__(self, settings: StrategySettings, base: TensorFile, base_sha256: str, context: RoundContext):
        super().__init__(settings, base, base_sha256, context)
        self.fold = Fold(base, base_sha256)
        self.weight = self.phones = self.unclipped = 0

    def measure(self, update: DecodedUpdate) -> dict[str, float]:
        """Each tensor's L2 norm."""
        return measured_norms(update)

    def add(self, update: DecodedUpdate, weight: int, measures: Measures) -> None:
        """Clip, weight and fold, with steps rounded towards zero, so that no norm grows."""
        measured = norms_in(measures)
        norms = {spec.name: measured[spec.name] for spec in trained_specs(self.base)}  # frozen ones share no bound
        share = weight / WEIGHT_STEPS
        clips = clip_factors(norms, self.settings.clip_norm, self.settings.per_layer)
        scales = {name: clips.get(name, 0.0) * share for name in measured}
        self.fold.accumulate(update, 1, scaled_max_abs(norms, scales), scales)
        self.weight += weight
        self.phones += 1
        self.unclipped += all(clip == 1 for clip in clips.values())
