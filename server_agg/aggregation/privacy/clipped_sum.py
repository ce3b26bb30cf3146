"""The sum of clipped deltas, which private strategies add noise to."""

from collections.abc import Sequence
from typing import BinaryIO

from phonograd.device_runtime.formats.frozen import trained_specs
from phonograd.device_runtime.formats.tensor_file import TensorFile
from phonograd.device_runtime.update.update_file import DecodedUpdate
from phonograd.server_agg.aggregation.fold import FRACTION_BITS
from phonograd.server_agg.aggregation.privacy.mechanism import clip_factors, scaled_max_abs
from phonograd.server_agg.aggregation.settings import StrategySettings
from phonograd.server_agg.aggregation.strategy import (
    WEIGHT_STEPS,
    ClientUpdate,
    FoldedAggregation,
    Measures,
    RoundContext,
    measured_norms,
    norms_in,
)

STEPS_PER_UNIT = 2.0**FRACTION_BITS


class ClippedSum(FoldedAggregation):
    """Clips, weights and sums updates as they arrive.

    weight: of the updates so far, in steps of 2**-20; phones: how many; unclipped: those of them below the bound.
    """

    def __init__(self, settings: StrategySettings, base: TensorFile, base_sha256: str, context: RoundContext):
        super().__init__(settings, base, base_sha256, context)
        self.weight = self.phones = self.unclipped = 0

    def measure(self, update: DecodedUpdate) -> dict[str, float]:
        """Each tensor's L2 norm."""
        return measured_norms(update)

    def add(self, update: DecodedUpdate, weight: int, measures: Measures) -> None:
        """Clip, weight and fold, with steps rounded towards zero, so that no norm grows."""
        norms, share, sign = self._norms(measures), abs(weight) / WEIGHT_STEPS, 1 if weight > 0 else -1
        clips = self._clips(norms)
        scales = {name: clips.get(name, 0.0) * share for name in norms_in(measures)}
        self.fold.accumulate(update, sign, scaled_max_abs(norms, scales), scales)
        self._count(weight, clips)

    def merge(self, file: BinaryIO, updates: Sequence[ClientUpdate]) -> None:
        """Add the sum, and count its updates by their measures."""
        super().merge(file, updates)
        for update in updates:
            self._count(update.weight, self._clips(self._norms(update.measures)))

    def _norms(self, measures: Measures) -> dict[str, float]:
        measured = norms_in(measures)
        return {spec.name: measured[spec.name] for spec in trained_specs(self.base)}  # frozen ones share no bound

    def _clips(self, norms: dict[str, float]) -> dict[str, float]:
        return clip_factors(norms, self.settings.clip_norm, self.settings.per_layer)

    def _count(self, weight: int, clips: dict[str, float]) -> None:
        sign = 1 if weight > 0 else -1
        self.weight += weight
        self.phones += sign
        self.unclipped += sign * all(clip == 1 for clip in clips.values())
