"""A round's settings from a command's configuration."""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from phonograd.config.serve import MASKED
from phonograd.config.strategies import STRATEGY
from phonograd.config.values import Config
from phonograd.console import Console
from phonograd.device_runtime.base.errors import UsageError
from phonograd.device_runtime.update.codecs import NORM_FACTORS
from phonograd.server_agg.aggregation.settings import NORM_STRATEGIES, STRATEGIES, StrategySettings
from phonograd.server_agg.settings.masked import MaskedSettings
from phonograd.server_agg.settings.rules import RoundRules
from phonograd.server_agg.settings.security import SecuritySettings
from phonograd.server_agg.settings.server import ServerSettings
from phonograd.server_agg.transfer.settings import TransferSettings


def strategy_from(config: Config) -> StrategySettings:
    """The strategy's settings. Raises UsageError for a value out of range, and what your own class raises."""
    name = config.get(STRATEGY)
    if name in STRATEGIES:
        return config.take(StrategySettings)
    from phonograd.server_agg.aggregation.own import own_strategy

    try:
        own = own_strategy(name, **config.own)
    except ValueError as error:
        raise UsageError(f"{config.layout.own_table}: {error}") from error
    return config.take(StrategySettings, strategy=own.strategy, own=own.own)


def masked_from(config: Config, strategy: StrategySettings, **others: Any) -> MaskedSettings | None:
    """The settings of masked rounds; None if rounds are not. Raises UsageError for a value out of range."""
    if not config.get(MASKED):
        return None
    if config.on_command_line(weighting := f"strategy.{strategy.strategy}.weighting"):
        raise UsageError(f"{weighting}: expected without {MASKED}; see masked.weight_cap")
    return config.take(MaskedSettings, steps=int(strategy.one_step), **others)


def matching(strategy: StrategySettings, masked: MaskedSettings | None) -> StrategySettings:
    """The strategy, whose weighting is that of masked rounds."""
    return strategy if masked is None else replace(strategy, weighting=masked.weighting)


def server_settings_from(config: Config) -> ServerSettings:
    """The settings of a server. Raises UsageError for a value out of range."""
    if config.get("rounds.deadline_seconds") is None and config.on_command_line("rounds.min_clients"):
        raise UsageError("rounds.min_clients: expected with rounds.deadline_seconds, which it is about")
    strategy = strategy_from(config)
    masked = masked_from(config, strategy)
    rules = config.take(RoundRules)
    if masked is not None:
        for key in ("clients_per_round", "min_clients", "max_clients"):
            if config.on_command_line(f"rounds.{key}"):
                raise UsageError(f"{config.name_of(f'rounds.{key}')}: expected without {MASKED}; see masked.cohort")
        rules = replace(rules, clients_per_round=masked.cohort)
    return config.take(
        ServerSettings,
        strategy=matching(strategy, masked),
        transfer=config.take(TransferSettings),
        rules=rules,
        masked=masked,
        security=config.take(SecuritySettings),
    )


def warn_of_norms(console: Console, strategy: StrategySettings, codecs: Iterable[str] = NORM_FACTORS) -> None:
    """Warn of a strategy that goes by the norms of decoded updates, if one of the codecs makes these larger."""
    larger = [f"{codec} {NORM_FACTORS[codec]:g}" for codec in codecs if codec in NORM_FACTORS]
    if strategy.strategy in NORM_STRATEGIES and larger:
        console.say(
            f"phonograd: warning: {strategy.strategy} goes by the norms of decoded updates, and codecs make them "
            f"larger: {', '.join(larger)} times; allow for it in a bound, or use another codec"
        )
