"""The epsilon spent by the rounds of a private strategy, computed from their settings, and its budget."""

from collections.abc import Iterable
from dataclasses import replace

from phonograd.server_agg.aggregation.privacy.accountant import (
    PrivacySpent,
    PrivateRounds,
    epsilon_upper_bound,
    privacy_spent,
)
from phonograd.server_agg.aggregation.settings import FTRL, StrategySettings

DAY_SECONDS = 86400.0


def over_budget(
    published: Iterable[StrategySettings], settings: StrategySettings, of_phones: Iterable[float] = ()
) -> bool:
    """Whether a round with `settings` would exceed its budget, see `privacy_spent_including`."""
    budget = settings.epsilon_budget
    return budget is not None and privacy_spent_including(published, settings, of_phones).epsilon > budget


def privacy_spent_including(
    published: Iterable[StrategySettings], settings: StrategySettings, of_phones: Iterable[float] = ()
) -> PrivacySpent:
    """The epsilon of a round with `settings` after rounds with the settings `published`, each with its own noise.

    Skips rounds without noise: epsilon is infinite for the phones in them, and unchanged for all others. A run of
    dp-ftrl is spent with its first round: it is one Gaussian mechanism, not amplified.

    of_phones: z of the rounds whose phones added noise, the last one too; not amplified, a phone may be in each round.
    Raises MissingExtraError without dp-accounting.
    """
    rounds = [one for one in published if one.private and one.noise_multiplier > 0]
    rounds += [settings] if settings.private else []
    runs = {one.noise_multiplier for one in rounds if one.strategy == FTRL}  # one, however many of its rounds there are
    costs = [_cost(one) for one in rounds if one.sampled]
    costs += [PrivateRounds(1.0, noise) for noise in runs]
    costs += [PrivateRounds(1.0, noise, rdp_only=True) for noise in of_phones]
    return privacy_spent(costs, settings.delta)


def idle_cost_warning(settings: StrategySettings, deadline_seconds: float) -> str:
    """A warning about the epsilon, or the rounds, that a private strategy spends in a day without phones."""
    rounds = max(1, round(DAY_SECONDS / deadline_seconds))
    if settings.strategy == FTRL:
        return (
            f"{FTRL}: every {deadline_seconds:g} s a round publishes a noisy model and uses up one of the "
            f"{settings.planned_rounds} planned ones, even if no phone took part: a day without phones costs "
            f"{min(rounds, settings.planned_rounds)} of them; raise `deadline_seconds` to use up fewer"
        )
    each = replace(_cost(settings), count=rounds)
    epsilon = epsilon_upper_bound([each], settings.delta)
    return (
        f"{settings.strategy}: every {deadline_seconds:g} s a round publishes a noisy model and spends privacy, even "
        f"if no phone took part: a day without phones costs epsilon {epsilon:.3g} at most (delta {settings.delta:g}); "
        "raise `deadline_seconds` to spend less, or set a limit with `epsilon_budget`"
    )


def _cost(settings: StrategySettings) -> PrivateRounds:
    return PrivateRounds(settings.sampling, settings.noise_multiplier)
