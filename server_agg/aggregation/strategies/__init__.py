"""The strategies by name."""

from collections.abc import Mapping

from phonograd.server_agg.aggregation.own import find_strategy
from phonograd.server_agg.aggregation.privacy.ftrl.strategy import CorrelatedMean
from phonograd.server_agg.aggregation.privacy.strategy import PrivateMean
from phonograd.server_agg.aggregation.settings import StrategySettings
from phonograd.server_agg.aggregation.strategies.attention import Attention
from phonograd.server_agg.aggregation.strategies.averaging import Averaging, BoundedAveraging
from phonograd.server_agg.aggregation.strategies.robust import Median, MultiKrum, TrimmedMean
from phonograd.server_agg.aggregation.strategy import Aggregation, Strategy

_AGGREGATIONS: Mapping[str, type[Aggregation]] = {
    "fedavg": Averaging,
    "fedsgd": Averaging,
    "fedatt": Attention,
    "median": Median,
    "trimmed-mean": TrimmedMean,
    "multi-krum": MultiKrum,
    "norm-bound": BoundedAveraging,
    "dp-fedavg": PrivateMean,
    "dp-fedsgd": PrivateMean,
    "dp-ftrl": CorrelatedMean,
    "transfer": Aggregation,
}


def strategy_of(settings: StrategySettings) -> Strategy:
    """The strategy named in the settings. Raises UsageError for a custom one that is not loaded."""
    return Strategy(settings, find_strategy(settings.strategy) if settings.is_own else _AGGREGATIONS[settings.strategy])
