"""Rounds of a private strategy: phones drawn at random, and epsilon that is spent and must last."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from server_agg.privacy.accountant import PrivateRounds, Spent, spent, would_exceed
from server_agg.privacy.sampling import sample
from server_agg.storage import queries
from server_agg.storage.phone_tables import Phone
from server_agg.storage.tables import Round, Selected
from server_agg.strategies import StrategySettings


def draw(session: Session, round_: Round) -> None:
    """Draw the phones of a round that has none yet, from all that are enrolled, within the caller's transaction."""
    settings = StrategySettings.from_json(round_.strategy)
    if not settings.private or round_.population:
        return
    enrolled = list(session.scalars(select(Phone.name).where(Phone.role == "phone", Phone.revoked_at.is_(None))))
    round_.population = len(enrolled)
    session.add_all(Selected(round=round_.number, phone=name) for name in sample(enrolled, settings.sampling))
    session.flush()


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
        return f"round {round_.number}: no phone is enrolled to be drawn; enrol some with: phonograd phones add"
    return None


def spent_with(session: Session, round_: Round) -> Spent | None:
    """What `round_` and all before it have spent together; None for a strategy that is not private."""
    settings = StrategySettings.from_json(round_.strategy)
    if not settings.private:
        return None
    return spent([*_spending(session), _cost(settings)], settings.delta)


def _spending(session: Session) -> list[PrivateRounds]:
    """The private rounds whose outcome was published, those rolled back since too: what is known stays known.

    One that failed counts as well: that it did tells something of its updates.
    """
    published = [round_ for round_ in queries.all_rounds(session) if round_.ending in ("full", "deadline", "failed")]
    past = [StrategySettings.from_json(round_.strategy) for round_ in published]
    return [_cost(settings) for settings in past if settings.private]


def _cost(settings: StrategySettings) -> PrivateRounds:
    return PrivateRounds(settings.sampling, settings.noise_multiplier)
