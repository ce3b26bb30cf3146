"""FedAtt (Ji et al., paper J): a phone that changed a layer more has more weight in that layer."""

import math
from collections.abc import Iterator, Mapping, Sequence

from phonograd.device_runtime.base.errors import WeightsError
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile
from phonograd.device_runtime.update.update_file import DecodedUpdate
from phonograd.server_agg.aggregation.fold import SUM_LIMIT, Fold
from phonograd.server_agg.aggregation.privacy.noise import NoiseStream, add_noise
from phonograd.server_agg.aggregation.settings import StrategySettings
from phonograd.server_agg.aggregation.strategy import (
    Aggregation,
    ClientUpdate,
    RoundContext,
    measured_norms,
    norms_in,
    sorted_by_hash,
)

# Attention sums to 1, so sums stay as small as one update's delta, and steps can be finer than in other folds.
FRACTION_BITS = 44
MAX_ABS_LIMIT = SUM_LIMIT / 2.0 ** (FRACTION_BITS + 1)  # 131072: half the accumulators' range


class Attention(Aggregation):
    """Measures norms at ingest; reads the stored updates again at the close, one at a time, into a fold.

    Token counts are checked but not used. Raises ValueError for a bad noise key.
    """

    def __init__(self, settings: StrategySettings, base: TensorFile, base_sha256: str, context: RoundContext):
        super().__init__(settings, base, base_sha256, context)
        noisy = settings.attention_noise > 0
        self._noise = NoiseStream(context.noise_key, context.number, "fedatt") if noisy else None

    def measure(self, update: DecodedUpdate) -> dict[str, float]:
        """Each tensor's s = ||w - w^k||_p. Raises WeightsError."""
        measures = measured_norms(update, self.settings.attention_norm)
        for name, norm in norms_in(measures).items():
            if norm >= MAX_ABS_LIMIT:  # no element exceeds the norm
                raise WeightsError(
                    f"update: tensor {name}: expected a delta of norm below {MAX_ABS_LIMIT:.6g}, found {norm:.6g}; "
                    "the update is too far from the base model"
                )
        return measures

    def deltas(self, updates: Sequence[ClientUpdate]) -> Iterator[Array]:
        """-epsilon x sum over k of alpha_k (w - w^k + beta N(0, sigma^2)), paper J's eq. 6.

        The noise of all phones is drawn as one: its sum is N(0, (beta sigma)^2 x sum of alpha_k^2).
        """
        updates = sorted_by_hash(updates)
        attention = attention_of([norms_in(update.measures) for update in updates])
        fold = Fold(self.base, self.base_sha256, FRACTION_BITS)
        for update, alphas in zip(updates, attention, strict=True):
            # By tensor: its attention sums to 1, so no update that passed `measure` can overflow the fold.
            max_abs = {name: norm * alphas[name] for name, norm in norms_in(update.measures).items()}
            with update.open() as tiles:
                fold.accumulate(tiles, 1, max_abs, alphas)
        step, noise = self.settings.attention_step, self.settings.attention_noise
        deltas = fold.deltas(1 / step)
        if not updates or self._noise is None:
            return deltas
        std = {name: step * noise * math.hypot(*(alphas[name] for alphas in attention)) for name in self.base.specs}
        return add_noise(deltas, self.base, self._noise, std)


def attention_of(norms: Sequence[Mapping[str, float]]) -> list[dict[str, float]]:
    """alpha: for each phone and tensor, the softmax of its norm over all phones."""
    attention: list[dict[str, float]] = [{} for _ in norms]
    for name in norms[0] if norms else ():
        largest = max(phone[name] for phone in norms)
        powers = [math.exp(phone[name] - largest) for phone in norms]
        total = math.fsum(powers)
        for alphas, power in zip(attention, powers, strict=True):
            alphas[name] = power / total
    return attention
