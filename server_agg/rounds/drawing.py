"""Rounds of a private strategy: phones drawn at random, and epsilon that is spent and must last."""

from dataclasses import replace

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from phonograd.server_agg.aggregation.privacy.accountant import PrivateRounds, Spent, bound, spent, would_exceed
from phonograd.server_agg.aggregation.privacy.sampling import sample
from phonograd.server_agg.aggregation.strategies import StrategySettings
from phonograd.server_agg.storage import queries
from phonograd.server_agg.storage.phone_tables import Phone
from phonograd.server_agg.storage.tables import PUBLISHED, Round, Selected

DAY_SECONDS = 86400.0


def draw(session: Session, round_: Round, now: float) -> bool:
    """Draw the phones of a private round that has none yet, from all that are enrolled, in the caller's transaction.

    The round's time begins now. False: it is not private, is drawn already, or too few are enrolled.
    """
    settings = StrategySettings.from_json(round_.strategy)
    if not settings.private or round_.population:
        return False
    phones = enrolled(session)
    if len(phones) < settings.population:
        return False
    round_.population, round_.opened_at = len(phones), now
    session.add_all(Selected(round=round_.number, phone=name) for name in sample(phones, settings.sampling))
    session.flush()
    return True


def draw_anew(session: Session, round_: Round, now: float) -> None:
    """Forget whom the round drew under settings that it has no longer, and draw under those it has."""
    session.execute(delete(Selected).where(Selected.round == round_.number))
    round_.population = 0
    draw(session, round_, now)


def enrolled(session: Session) -> list[str]:
    """The phones that a round can draw."""
    return list(session.scalars(select(Phone.name).where(Phone.role == "phone", Phone.revoked_at.is_(None))))


def halted(session: Session, round_: Round) -> str | None:
    """Why nobody can take part in this round of a private strategy; None if it goes on, or is not private.

    Raises MissingExtraError without dp-accounting.
    """
    settings = StrategySettings.from_json(round_.strategy)
    if not settings.private:
        return None
    if would_exceed(_spending(session), _cost(settings), settings.delta, settings.epsilon_budget):
        return (
            f"round {round_.number}: it would spend more than the privacy budget, epsilon {settings.epsilon_budget:g} "
            f"at delta {settings.delta:g}; the model is final"
        )
    if not round_.population:
        return (
            f"round {round_.number}: nobody is drawn before {settings.population} are enrolled (--population); enrol "
            "phones with: phonograd phones add"
        )
    return None


def spent_with(session: Session, round_: Round) -> Spent | None:
    """What `round_` and all before it have spent together; None for a strategy that is not private."""
    settings = StrategySettings.from_json(round_.strategy)
    if not settings.private:
        return None
    return spent([*_spending(session), _cost(settings)], settings.delta)


def _spending(session: Session) -> list[PrivateRounds]:
    """The rounds whose outcome was published with noise, those rolled back since too: what is known stays known.

    One that failed counts as well: that it did tells something of its updates. Rounds without noise are left out: there
    epsilon is infinite for the phones in them (queries.phones_without_epsilon), and for the others as it was.
    """
    published = [round_ for round_ in queries.all_rounds(session) if round_.ending in (*PUBLISHED, "failed")]
    past = [StrategySettings.from_json(round_.strategy) for round_ in published]
    return [_cost(settings) for settings in past if settings.private and settings.noise_multiplier > 0]


def _cost(settings: StrategySettings) -> PrivateRounds:
    return PrivateRounds(settings.sampling, settings.noise_multiplier)


def cost_of_a_day(settings: StrategySettings, deadline_seconds: float) -> str:
    """What a day costs on which nobody comes, for whoever starts a server of a private strategy."""
    rounds = max(1, round(DAY_SECONDS / deadline_seconds))
    each = replace(_cost(settings), count=rounds)
    return (
        f"{settings.strategy}: a round is published with noise every {deadline_seconds:g} s, whoever came, and spends "
        f"privacy: a day without a single phone costs epsilon {bound([each], settings.delta):.3g} at most (delta "
        f"{settings.delta:g}); a longer --deadline-seconds costs less, and --epsilon-budget sets an end"
    )
