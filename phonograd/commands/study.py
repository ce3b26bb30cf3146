"""What is simulated, from a study's configuration."""

from typing import Any

from phonograd.commands.native import build_on_first_use, chosen_precision
from phonograd.commands.round_settings import masked_from, matching, strategy_from, warn_of_norms
from phonograd.config.serve import MASKED
from phonograd.config.simulate import Study
from phonograd.config.values import Config
from phonograd.console import Console
from phonograd.device_runtime.base.errors import UsageError
from phonograd.server_agg.settings.masked import FEWEST
from phonograd.server_agg.transfer.settings import TransferSettings
from phonograd.simulation.settings import SimulationSettings


def simulation_from(console: Console, config: Config, study: Study, **others: Any) -> SimulationSettings:
    """The settings of a simulation. Raises UsageError for a value out of range, and one that would be ignored."""
    rehearses, late = study.rehearsal is not None, bool(config.get("failures.late_phones"))
    masked = bool(config.get(MASKED))
    _refuse(config, "training.user_share", rehearses, "with rehearsal, the general text to mix in")
    _refuse(config, "rounds.late", late, "with failures.late_phones, the chance that an update is late")
    _refuse(config, "training.codec", not masked, f"without {MASKED}, whose updates are rounded to a grid")
    strategy = strategy_from(config)
    build_on_first_use(console)  # it has the rules of masked rounds
    phones = max(FEWEST, config.get("rounds.clients_per_round"))
    grid = masked_from(config, strategy, cohort=phones, min_cohort=phones)
    settings = config.take(
        SimulationSettings,
        strategy=matching(strategy, grid),
        transfer=config.take(TransferSettings),
        masked=grid,
        precision=chosen_precision(console, study.precision, threads=1),
        **others,
    )
    warn_of_norms(console, strategy, [settings.codec])
    return settings


def _refuse(config: Config, key: str, used: bool, expected: str) -> None:
    if not used and config.on_command_line(key):
        raise UsageError(f"{config.name_of(key)}: expected {expected}")
