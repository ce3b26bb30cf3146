"""What a private strategy asks of the ledger: which phones are drawn for a round, and what all rounds have spent.

The mathematics is in aggregation/privacy.
"""

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from phonograd.server_agg.aggregation.privacy import budget
from phonograd.server_agg.aggregation.privacy.accountant import Spent
from phonograd.server_agg.aggregation.privacy.mechanism import sample
from phonograd.server_agg.aggregation.strategies import StrategySettings
from phonograd.server_agg.storage import queries
from phonograd.server_agg.storage.tables import PUBLISHED, Phone, Round, Selected


def sample_phones(session: Session, round_: Round, now: float) -> bool:
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


def resample_phones(session: Session, round_: Round, now: float) -> None:
    """Forget whom the round drew under settings that it has no longer, and draw under those it has."""
    session.execute(delete(Selected).where(Selected.round == round_.number))
    round_.population = 0
    sample_phones(session, round_, now)


def enrolled(session: Session) -> list[str]:
    """The phones that a round can draw."""
    return list(session.scalars(select(Phone.name).where(Phone.role == "phone", Phone.revoked_at.is_(None))))


def halt_reason(session: Session, round_: Round) -> str | None:
    """Why nobody can take part in this round of a private strategy; None if it goes on, or is not private.

    Raises MissingExtraError without dp-accounting.
    """
    settings = StrategySettings.from_json(round_.strategy)
    if not settings.private:
        return None
    if budget.over_budget(_published(session), settings):
        return (
            f"round {round_.number}: it would spend more than the privacy budget, epsilon {settings.epsilon_budget:g} "
            f"at delta {settings.delta:g}; the model is final"
        )
    if not round_.population:
        return (
            f"round {round_.number}: nobody is drawn before {settings.population} are enrolled (`population`); enrol "
            "phones with: phonograd tokens add"
        )
    return None


def spent_including(session: Session, round_: Round) -> Spent | None:
    """What `round_` and all before it have spent together; None for a strategy that is not private."""
    settings = StrategySettings.from_json(round_.strategy)
    return budget.spent_including(_published(session), settings) if settings.private else None


def _published(session: Session) -> list[StrategySettings]:
    """The settings of rounds whose outcome was published, those rolled back since too: what is known stays known.

    One that failed counts as well: that it did tells something of its updates. Of rounds without noise the ledger has
    the phones whose epsilon is infinite (queries.phones_without_epsilon).
    """
    past = [round_ for round_ in queries.all_rounds(session) if round_.ending in (*PUBLISHED, "failed")]
    return [StrategySettings.from_json(round_.strategy) for round_ in past]
