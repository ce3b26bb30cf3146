"""How a round's updates become the next model: settings, strategies, server optimizers, model writer."""

from collections.abc import Callable, Mapping

from phonograd.server_agg.aggregation.model_writer import write_model
from phonograd.server_agg.aggregation.privacy.strategy import PrivateAveraging
from phonograd.server_agg.aggregation.settings import PRIVATE_STRATEGIES, STRATEGIES, WEIGHTINGS, StrategySettings
from phonograd.server_agg.aggregation.strategies.attention import FedAtt
from phonograd.server_agg.aggregation.strategies.averaging import FedAvg, NormBound
from phonograd.server_agg.aggregation.strategies.robust import median, multi_krum, trimmed_mean
from phonograd.server_agg.aggregation.strategies.teachers import Teachers
from phonograd.server_agg.aggregation.strategy import Aggregation, ClientUpdate, Measures, RoundContext, Strategy

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
    "transfer": Teachers,
}

__all__ = [
    "PRIVATE_STRATEGIES",
    "STRATEGIES",
    "WEIGHTINGS",
    "Aggregation",
    "ClientUpdate",
    "Measures",
    "RoundContext",
    "Strategy",
    "StrategySettings",
    "strategy_of",
    "write_model",
]


def strategy_of(settings: StrategySettings) -> Strategy:
    """The strategy named in the settings."""
    return _MAKERS[settings.strategy](settings)
