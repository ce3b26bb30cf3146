"""Robust averages, which a hostile minority cannot move at will. Every phone counts once; tokens are ignored."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from phonograd.device_runtime.formats.tensor_file import Array, TensorFile
from phonograd.device_runtime.update.update_file import UpdateInfo
from phonograd.server_agg.aggregation.norms import max_abs_delta
from phonograd.server_agg.aggregation.settings import StrategySettings
from phonograd.server_agg.aggregation.stacked import as_tiles, stacked_deltas, zero_deltas
from phonograd.server_agg.aggregation.strategy import (
    MAX_STACKED_UPDATES,
    REACH,
    ClientUpdate,
    Measures,
    RoundContext,
    sorted_by_hash,
    update_weight,
)
from phonograd.server_agg.aggregation.tile_source import TileSource, check_float32

# Combines the deltas of K updates: from updates and base to float64 runs.
Combine = Callable[[Sequence[ClientUpdate], TensorFile], Iterator[Array]]


@dataclass(frozen=True)
class RobustStrategy:
    """median, trimmed-mean or multi-krum."""

    settings: StrategySettings
    combine: Combine
    min_updates: int = 1
    max_updates: int = MAX_STACKED_UPDATES

    @property
    def name(self) -> str:
        """The strategy's name."""
        return self.settings.strategy

    def weight(self, info: UpdateInfo) -> int:
        """Tokens, or 1; checked but not used. Raises InvalidUpdateError for more than max_tokens."""
        return update_weight(self.settings, info)

    def begin(self, base: TensorFile, base_sha256: str, context: RoundContext) -> "StackedAggregation":
        """Needs no memory until the close."""
        del base_sha256, context
        check_float32(base)
        return StackedAggregation(base, self.combine)


class StackedAggregation:
    """Checks updates at ingest, and stacks all of them at the close."""

    def __init__(self, base: TensorFile, combine: Combine):
        self._base = base
        self._combine = combine

    def measure(self, update: TileSource) -> dict[str, float]:
        """The largest |delta|. Raises WeightsError for values that are not finite."""
        return {REACH: max_abs_delta(update, self._base)}

    def add(self, update: TileSource, weight: int, measures: Measures) -> None:
        """Does nothing: the average needs all updates together."""

    def deltas(self, updates: Sequence[ClientUpdate]) -> Iterator[Array]:
        """The robust average of all updates."""
        if not updates:
            return zero_deltas(self._base)
        return as_tiles(self._combine(updates, self._base), self._base)


def median(settings: StrategySettings) -> RobustStrategy:
    """The coordinate-wise median (Yin et al. 2018); of an even number, the mean of the two in the middle."""

    def combine(updates: Sequence[ClientUpdate], base: TensorFile) -> Iterator[Array]:
        for block in stacked_deltas(updates, base):
            block.sort(axis=0)
            count = len(block)
            yield (block[(count - 1) // 2] + block[count // 2]) / 2

    return RobustStrategy(settings, combine)


def trimmed_mean(settings: StrategySettings) -> RobustStrategy:
    """The coordinate-wise mean without the floor(share x K) smallest and largest values (Yin et al. 2018)."""

    def combine(updates: Sequence[ClientUpdate], base: TensorFile) -> Iterator[Array]:
        for block in stacked_deltas(updates, base):
            block.sort(axis=0)
            trimmed = math.floor(settings.trim_share * len(block))
            yield block[trimmed : len(block) - trimmed].mean(axis=0)

    return RobustStrategy(settings, combine)


def multi_krum(settings: StrategySettings) -> RobustStrategy:
    """Multi-Krum (Blanchard et al. 2017): the mean of the m updates that lie closest to their neighbours.

    An update's score is the sum of its squared distances to the K - f - 2 updates nearest to it. K is at least 2f + 3.
    """
    hostile = settings.krum_byzantine

    def combine(updates: Sequence[ClientUpdate], base: TensorFile) -> Iterator[Array]:
        updates = sorted_by_hash(updates)
        scores = krum_scores(squared_distances(updates, base), hostile)
        wanted = min(settings.krum_selected or len(updates) - hostile, len(updates))
        chosen = sorted(range(len(updates)), key=lambda row: (scores[row], row))[: max(1, wanted)]
        for block in stacked_deltas([updates[row] for row in chosen], base):
            yield block.mean(axis=0)

    return RobustStrategy(settings, combine, min_updates=2 * hostile + 3)


def squared_distances(updates: Sequence[ClientUpdate], base: TensorFile) -> Array:
    """||delta_i - delta_j||^2, float64 [K, K], rows sorted by hash; from inner products, summed block by block."""
    products = np.zeros((len(updates), len(updates)))
    for block in stacked_deltas(updates, base):
        products += block @ block.T
    lengths = np.diag(products)
    distances: Array = np.maximum(lengths[:, None] + lengths[None, :] - 2 * products, 0)
    return distances


def krum_scores(distances: Array, hostile: int) -> list[float]:
    """Each update's sum of squared distances to its K - f - 2 nearest neighbours, itself left out."""
    count = len(distances)
    nearest = max(1, count - hostile - 2)
    return [math.fsum(np.sort(np.delete(row, at))[:nearest]) for at, row in enumerate(distances)]
