"""Robust averages, which a hostile minority cannot move at will. Every phone counts once; tokens are ignored."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from phonograd.device_runtime.formats.tensor_file import Array, TensorFile
from phonograd.server_agg.aggregation.settings import StrategySettings
from phonograd.server_agg.aggregation.stacked import as_tiles, stacked_deltas, zero_deltas
from phonograd.server_agg.aggregation.strategy import MAX_STACKED_UPDATES, Aggregation, ClientUpdate, sorted_by_hash


class Stacked(Aggregation):
    """Checks updates at ingest, and stacks all of them at the close."""

    max_updates = MAX_STACKED_UPDATES

    def deltas(self, updates: Sequence[ClientUpdate]) -> Iterator[Array]:
        """The robust average of all updates."""
        return as_tiles(self._combine(updates), self.base) if updates else zero_deltas(self.base)

    def _combine(self, updates: Sequence[ClientUpdate]) -> Iterator[Array]:
        for block in stacked_deltas(updates, self.base):
            block.sort(axis=0)
            yield self._middle(block)

    def _middle(self, block: Array) -> Array:
        """The average [n] of the deltas [K, n] of K updates, each column sorted."""
        raise NotImplementedError


class Median(Stacked):
    """The coordinate-wise median (Yin et al. 2018); of an even number, the mean of the two in the middle."""

    def _middle(self, block: Array) -> Array:
        count = len(block)
        middle: Array = (block[(count - 1) // 2] + block[count // 2]) / 2
        return middle


class TrimmedMean(Stacked):
    """The coordinate-wise mean without the floor(share x K) smallest and largest values (Yin et al. 2018)."""

    def _middle(self, block: Array) -> Array:
        trimmed = math.floor(self.settings.trim_share * len(block))
        middle: Array = block[trimmed : len(block) - trimmed].mean(axis=0)
        return middle


class MultiKrum(Stacked):
    """Multi-Krum (Blanchard et al. 2017): the mean of the m updates that lie closest to their neighbours.

    An update's score is the sum of its squared distances to the K - f - 2 updates nearest to it. K is at least 2f + 3.
    """

    @staticmethod
    def min_updates(settings: StrategySettings) -> int:
        """2f + 3."""
        return 2 * settings.krum_byzantine + 3

    def _combine(self, updates: Sequence[ClientUpdate]) -> Iterator[Array]:
        updates, hostile = sorted_by_hash(updates), self.settings.krum_byzantine
        scores = krum_scores(squared_distances(updates, self.base), hostile)
        wanted = min(self.settings.krum_selected or len(updates) - hostile, len(updates))
        chosen = sorted(range(len(updates)), key=lambda row: (scores[row], row))[: max(1, wanted)]
        for block in stacked_deltas([updates[row] for row in chosen], self.base):
            yield block.mean(axis=0)


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
