"""FedAvg and FedSGD: the weighted mean of the deltas. Norm bound: the same, with each delta scaled to a norm bound."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from phonograd.device_runtime.formats.tensor_file import Array, TensorFile
from phonograd.device_runtime.update.update_file import UpdateInfo
from phonograd.server_agg.aggregation.fold import Fold
from phonograd.server_agg.aggregation.norms import max_abs_delta, norms_of
from phonograd.server_agg.aggregation.privacy.mechanism import clip_factors, scaled_max_abs
from phonograd.server_agg.aggregation.settings import StrategySettings
from phonograd.server_agg.aggregation.strategy import (
    NORM,
    REACH,
    UNLIMITED,
    ClientUpdate,
    Measures,
    RoundContext,
    norms_in,
    update_weight,
)
from phonograd.server_agg.aggregation.tile_source import TileSource


@dataclass(frozen=True)
class FedAvg:
    """Federated averaging (McMahan et al. 2017): sum of n_k delta_k over sum of n_k, n_k tokens or 1.

    In FedSGD each phone makes a single step, so its delta is minus its learning rate times its gradient.
    """

    settings: StrategySettings
    min_updates: int = 1
    max_updates: int = UNLIMITED

    @property
    def name(self) -> str:
        """fedavg or fedsgd."""
        return self.settings.strategy

    def weight(self, info: UpdateInfo) -> int:
        """Tokens, or 1. Raises InvalidUpdateError for more than max_tokens."""
        return update_weight(self.settings, info)

    def begin(self, base: TensorFile, base_sha256: str, context: RoundContext) -> "Averaging":
        """Needs a fold: one int64 per parameter."""
        del context
        return Averaging(Fold(base, base_sha256))


class Averaging:
    """Sums updates as they arrive."""

    def __init__(self, fold: Fold):
        self._fold = fold

    def measure(self, update: TileSource) -> dict[str, float]:
        """The largest |delta|. Raises WeightsError."""
        return {REACH: max_abs_delta(update, self._fold.base)}

    def add(self, update: TileSource, weight: int, measures: Measures) -> None:
        """Fold it. Raises WeightsError, with nothing changed, for sums that would overflow."""
        self._fold.accumulate(update, weight, measures[REACH])

    def deltas(self, updates: Sequence[ClientUpdate]) -> Iterator[Array]:
        """The sum divided by the total weight."""
        del updates
        return self._fold.deltas()


@dataclass(frozen=True)
class NormBound(FedAvg):
    """Norm bounding (Sun et al. 2019): each delta is scaled to an L2 norm of at most M, then averaged as in FedAvg.

    A hostile phone can move the mean by at most M times its share of the weight.
    """

    def begin(self, base: TensorFile, base_sha256: str, context: RoundContext) -> "BoundedAveraging":
        """Needs a fold: one int64 per parameter."""
        del context
        return BoundedAveraging(Fold(base, base_sha256), self.settings.norm_bound)


class BoundedAveraging(Averaging):
    """Scales updates to the bound and sums them as they arrive."""

    def __init__(self, fold: Fold, bound: float):
        super().__init__(fold)
        self._bound = bound

    def measure(self, update: TileSource) -> dict[str, float]:
        """Each tensor's L2 norm. Raises WeightsError."""
        return {NORM + name: norm for name, norm in norms_of(update, self._fold.base).items()}

    def add(self, update: TileSource, weight: int, measures: Measures) -> None:
        """Scale and fold it. Raises WeightsError, with nothing changed, for sums that would overflow."""
        norms = norms_in(measures)
        scales = clip_factors(norms, self._bound, per_layer=False)
        self._fold.accumulate(update, weight, scaled_max_abs(norms, scales), scales)
