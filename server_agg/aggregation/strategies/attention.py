"""FedAtt (Ji et al., paper J): a phone that changed a layer more has more weight in that layer."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from phonograd.device_runtime.base.errors import WeightsError
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile
from phonograd.device_runtime.update.update_file import UpdateInfo
from phonograd.server_agg.aggregation.fold import SUM_LIMIT, Fold
from phonograd.server_agg.aggregation.norms import Norm, norms_of
from phonograd.server_agg.aggregation.privacy.noise import NoiseStream, add_noise
from phonograd.server_agg.aggregation.settings import StrategySettings
from phonograd.server_agg.aggregation.strategy import (
    NORM,
    UNLIMITED,
    ClientUpdate,
    Measures,
    RoundContext,
    norms_in,
    sorted_by_hash,
    update_weight,
)
from phonograd.server_agg.aggregation.tile_source import TileSource, check_float32

# Attention sums to 1, so sums stay as small as one update's delta, and steps can be finer than in other folds.
FRACTION_BITS = 44
MAX_ABS_LIMIT = SUM_LIMIT / 2.0 ** (FRACTION_BITS + 1)  # 131072: half the accumulators' range


@dataclass(frozen=True)
class FedAtt:
    """Attentive aggregation. Token counts are checked but not used."""

    settings: StrategySettings
    name: str = "fedatt"
    min_updates: int = 1
    max_updates: int = UNLIMITED

    def weight(self, info: UpdateInfo) -> int:
        """Tokens, or 1. Raises InvalidUpdateError for more than max_tokens."""
        return update_weight(self.settings, info)

    def begin(self, base: TensorFile, base_sha256: str, context: RoundContext) -> "Attention":
        """Needs no memory until the close, then a fold: one int64 per parameter. ValueError for a bad noise key."""
        return Attention(self.settings, base, base_sha256, context)


class Attention:
    """Measures norms at ingest; reads the stored updates again at the close, one at a time."""

    def __init__(self, settings: StrategySettings, base: TensorFile, base_sha256: str, context: RoundContext):
        check_float32(base)
        self._settings = settings
        self._base = base
        self._base_sha256 = base_sha256
        noisy = settings.attention_noise > 0
        self._noise = NoiseStream(context.noise_key, context.number, "fedatt") if noisy else None

    def measure(self, update: TileSource) -> dict[str, float]:
        """Each tensor's s = ||w - w^k||_p (eq. 2). Raises WeightsError."""
        norms = norms_of(update, self._base, cast(Norm, self._settings.attention_norm))
        for name, norm in norms.items():
            if norm >= MAX_ABS_LIMIT:  # no element exceeds the norm
                raise WeightsError(
                    f"update: tensor {name}: expected a delta of norm below {MAX_ABS_LIMIT:.6g}, found {norm:.6g}; "
                    "the update is too far from the base model"
                )
        return {NORM + name: norm for name, norm in norms.items()}

    def add(self, update: TileSource, weight: int, measures: Measures) -> None:
        """Does nothing: the weights need the norms of all updates."""

    def deltas(self, updates: Sequence[ClientUpdate]) -> Iterator[Array]:
        """-epsilon x sum over k of alpha_k (w - w^k + beta N(0, sigma^2)), eqs. 5-6.

        The noise of all phones is drawn as one: its sum is N(0, (beta sigma)^2 x sum of alpha_k^2).
        """
        updates = sorted_by_hash(updates)
        attention = attention_of([norms_in(update.measures) for update in updates])
        fold = Fold(self._base, self._base_sha256, FRACTION_BITS)
        for update, alphas in zip(updates, attention, strict=True):
            # By tensor: its attention sums to 1, so no update that passed `measure` can overflow the fold.
            max_abs = {name: norm * alphas[name] for name, norm in norms_in(update.measures).items()}
            with update.open() as tiles:
                fold.accumulate(tiles, 1, max_abs, alphas)
        step, noise = self._settings.attention_step, self._settings.attention_noise
        deltas = fold.deltas(1 / step)
        if not updates or self._noise is None:
            return deltas
        std = {name: step * noise * math.hypot(*(alphas[name] for alphas in attention)) for name in self._base.specs}
        return add_noise(deltas, self._base, self._noise, std)


def attention_of(norms: Sequence[Mapping[str, float]]) -> list[dict[str, float]]:
    """alpha (eqs. 3-4): for each phone and tensor, the softmax of its norm over all phones."""
    attention: list[dict[str, float]] = [{} for _ in norms]
    for name in norms[0] if norms else ():
        largest = max(phone[name] for phone in norms)
        powers = [math.exp(phone[name] - largest) for phone in norms]
        total = math.fsum(powers)
        for alphas, power in zip(attention, powers, strict=True):
            alphas[name] = power / total
    return attention
