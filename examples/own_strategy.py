"""A strategy of your own: the mean of the largest group of updates that point in the same direction.

In this folder, or with it on PYTHONPATH:

    phonograd serve --artifacts ARTIFACTS --state STATE --strategy own_strategy:LargestCluster
    phonograd simulate ARTIFACTS --users USERS --out OUT --strategy own_strategy:LargestCluster

`--set strategy.similarity=0.3` changes a setting of it; in a configuration file they are in the table [strategy.own].

What a strategy may assume is in docs/strategies.md, "A strategy of your own". After Sattler et al. 2021, Clustered
Federated Learning, whose server goes by the cosine similarity of updates too; it keeps a model for each cluster.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from phonograd import Aggregation, ClientUpdate, StrategySettings
from phonograd.server_agg.aggregation.stacked import as_tiles, stacked_deltas

Array = npt.NDArray[np.float64]


class LargestCluster(Aggregation):
    """The mean of the largest cluster: updates are in one if a chain of similar ones leads from each to each.

    Updates are checked when they come (`Aggregation.measure`), and read again when the round closes.
    """

    @dataclass(frozen=True)
    class Settings:
        """Each field is a key of [strategy.own]. Raises ValueError for one that is out of range."""

        similarity: float = 0.2  # cosine from which two updates are similar

        def __post_init__(self) -> None:
            if not -1 <= self.similarity <= 1:
                raise ValueError(f"`similarity` is {self.similarity}, expected -1 to 1")

    own: Settings  # those of this round
    max_updates = 256  # that `stacked_deltas` opens side by side

    @staticmethod
    def min_updates(settings: StrategySettings) -> int:
        """Two say what a cluster is."""
        del settings
        return 2

    def deltas(self, updates: Sequence[ClientUpdate]) -> Iterator[Array]:
        """The cluster's mean, tile by tile: all of a model of millions of weights never is in memory."""
        updates = sorted(updates, key=lambda update: update.sha256)  # the same model, whoever came first
        chosen = self._largest(updates)
        blocks = stacked_deltas([updates[row] for row in chosen], self.base)  # each float64 [K, n]
        return as_tiles((block.mean(axis=0) for block in blocks), self.base)

    def _largest(self, updates: Sequence[ClientUpdate]) -> list[int]:
        """The rows of the largest cluster; of two, the one with the first row."""
        products: Array = np.zeros((len(updates), len(updates)))  # [K, K]
        for block in stacked_deltas(updates, self.base):
            products += block @ block.T
        norms = np.sqrt(np.diag(products))
        similar = products >= self.own.similarity * np.outer(norms, norms)
        left, clusters = set(range(len(updates))), list[list[int]]()
        while left:
            cluster = {min(left)}
            while grown := {row for row in left - cluster if similar[row, list(cluster)].any()}:
                cluster |= grown
            clusters.append(sorted(cluster))
            left -= cluster
        return max(clusters, key=len)
