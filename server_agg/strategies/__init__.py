"""How a round's updates become the next model: settings, strategies, server optimisers, and the writer of the model."""

from collections.abc import Callable, Mapping

from server_agg.strategies.attention import FedAtt
from server_agg.strategies.averaging import FedAvg, NormBound
from server_agg.strategies.base import Aggregation, Measures, Member, RoundContext, Strategy
from server_agg.strategies.model_writer import write_model
from server_agg.strategies.optimizers import state_is_of
from server_agg.strategies.private import PrivateAveraging
from server_agg.strategies.robust import median, multi_krum, trimmed_mean
from server_agg.strategies.settings import PRIVATE_STRATEGIES, STRATEGIES, WEIGHTINGS, StrategySettings

_MAKERS: Mapping[str, Callable[[StrategySettings], Strategy]] = {
    "fedavg": FedAvg,
    "fedsgd": FedAvg,
    "fedatt": FedAtt,
    "median": median,
    "trimmed-mean": trimmed_mean,
    "multi-krum": multi_krum,
    "norm-bound": NormBound,
    "dp-fedavg": PrivateAveraging,
    "dp-fedsgd": PrivateAveraging,
}

__all__ = [
    "PRIVATE_STRATEGIES",
    "STRATEGIES",
    "WEIGHTINGS",
    "Aggregation",
    "Measures",
    "Member",
    "RoundContext",
    "Strategy",
    "StrategySettings",
    "state_is_of",
    "strategy_of",
    "write_model",
]


def strategy_of(settings: StrategySettings) -> Strategy:
    """The strategy that the settings name."""
    return _MAKERS[settings.strategy](settings)
