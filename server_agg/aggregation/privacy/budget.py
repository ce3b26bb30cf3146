"""What the rounds of a private strategy have spent, and whether their budget allows another.

The accountant composes mechanisms; here they are read off the rounds' settings.
"""

from collections.abc import Iterable
from dataclasses import replace

from phonograd.server_agg.aggregation.privacy.accountant import PrivateRounds, Spent, bound, spent, would_exceed
from phonograd.server_agg.aggregation.settings import StrategySettings

DAY_SECONDS = 86400.0


def over_budget(published: Iterable[StrategySettings], settings: StrategySettings) -> bool:
    """Whether a round under `settings` would spend more than its budget, after rounds under those `published`.

    Raises MissingExtraError without dp-accounting.
    """
    return would_exceed(_costs(published), _cost(settings), settings.delta, settings.epsilon_budget)


def spent_with(published: Iterable[StrategySettings], settings: StrategySettings) -> Spent:
    """What a round under `settings` and those `published` before it have spent together."""
    return spent([*_costs(published), _cost(settings)], settings.delta)


def cost_of_a_day(settings: StrategySettings, deadline_seconds: float) -> str:
    """What a day costs on which nobody comes, for whoever starts a server of a private strategy."""
    rounds = max(1, round(DAY_SECONDS / deadline_seconds))
    each = replace(_cost(settings), count=rounds)
    return (
        f"{settings.strategy}: a round is published with noise every {deadline_seconds:g} s, whoever came, and spends "
        f"privacy: a day without a single phone costs epsilon {bound([each], settings.delta):.3g} at most (delta "
        f"{settings.delta:g}); a longer --deadline-seconds costs less, and --epsilon-budget sets an end"
    )


def _costs(published: Iterable[StrategySettings]) -> list[PrivateRounds]:
    """Rounds without noise are left out: there epsilon is infinite for the phones in them, and for others as it was."""
    return [_cost(settings) for settings in published if settings.private and settings.noise_multiplier > 0]


def _cost(settings: StrategySettings) -> PrivateRounds:
    return PrivateRounds(settings.sampling, settings.noise_multiplier)
