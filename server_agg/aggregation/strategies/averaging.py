"""FedAvg and FedSGD: the weighted mean of the deltas. Norm bound: the same, with each delta scaled to a norm bound."""

from phonograd.device_runtime.update.update_file import DecodedUpdate
from phonograd.server_agg.aggregation.privacy.mechanism import clip_factors, scaled_max_abs
from phonograd.server_agg.aggregation.strategy import (
    REACH,
    FoldedAggregation,
    Measures,
    measured_norms,
    norms_in,
)


class Averaging(FoldedAggregation):
    """Federated averaging (McMahan et al. 2017): sum of n_k delta_k over sum of n_k, n_k tokens or 1.

    In FedSGD each phone makes a single step, so its delta is minus its learning rate times its gradient.
    """

    one_pass = True

    def take(self, update: DecodedUpdate, weight: int) -> Measures:
        """Fold it while it is measured."""
        return {REACH: self.fold.take(update, weight)}

    def add(self, update: DecodedUpdate, weight: int, measures: Measures) -> None:
        """Fold it."""
        self.fold.accumulate(update, weight, measures[REACH])


class BoundedAveraging(FoldedAggregation):
    """Norm bounding (Sun et al. 2019): each delta is scaled to an L2 norm of at most M, then averaged as in FedAvg.

    A hostile phone can move the mean by at most M times its share of the weight.
    """

    def measure(self, update: DecodedUpdate) -> dict[str, float]:
        """Each tensor's L2 norm."""
        return measured_norms(update)

    def add(self, update: DecodedUpdate, weight: int, measures: Measures) -> None:
        """Scale and fold it."""
        norms = norms_in(measures)
        scales = clip_factors(norms, self.settings.norm_bound, per_layer=False)
        self.fold.accumulate(update, weight, scaled_max_abs(norms, scales), scales)
