"""What the rounds of a private strategy have spent, and whether their budget allows another.

The accountant composes mechanisms; here they are read off the rounds' settings.
"""

from collections.abc import Iterable
from dataclasses import replace

from phonograd.server_agg.aggregation.privacy.accountant import (
    PrivateRounds,
    Spent,
    epsilon_upper_bound,
    spent,
    would_exceed,
)
from phonograd.server_agg.aggregation.settings import StrategySettings

DAY_SECONDS = 86400.0


def over_budget(published: Iterable[StrategySettings], settings: StrategySettings) -> bool:
    """Whether a round under `settings` would spend more than its budget, after rounds under those `published`.

    Raises MissingExtraError without dp-accounting.
    """
    return would_exceed(_costs(published), _cost(settings), settings.delta, settings.epsilon_budget)


def spent_including(published: Iterable[StrategySettings], settings: StrategySettings) -> Spent:
    """What a round under `settings` and those `published` before it have spent together."""
    return spent([*_costs(published), _cost(settings)], settings.delta)


def idle_cost_warning(settings: StrategySettings, deadline_seconds: float) -> str:
    """What a day costs on which nobody comes, for whoever starts a server of a private strategy."""
    rounds = max(1, round(DAY_SECONDS / deadline_seconds))
    each = replace(_cost(settings), count=rounds)
    epsilon = epsilon_upper_bound([each], settings.delta)
    return (
        f"{settings.strategy}: every {deadline_seconds:g} s a round publishes a noisy model and spends privacy, even "
        f"if no phone took part: a day without phones costs epsilon {epsilon:.3g} at most (delta {settings.delta:g}); "
        "raise `deadline_seconds` to spend less, or set a limit with `epsilon_budget`"
    )


def _costs(published: Iterable[StrategySettings]) -> list[PrivateRounds]:
    """Rounds without noise are left out: there epsilon is infinite for the phones in them, and for others as it was."""
    return [_cost(settings) for settings in published if settings.private and settings.noise_multiplier > 0]


def _cost(settings: StrategySettings) -> PrivateRounds:
    return PrivateRounds(settings.sampling, settings.noise_multiplier)
