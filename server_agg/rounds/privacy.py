"""Private rounds in the ledger: the phones sampled for a round, and the epsilon spent so far.

The mathematics is in aggregation/privacy.
"""

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from phonograd.server_agg.aggregation.privacy import budget
from phonograd.server_agg.aggregation.privacy.accountant import PrivacySpent
from phonograd.server_agg.aggregation.privacy.mechanism import poisson_sample
from phonograd.server_agg.aggregation.settings import StrategySettings
from phonograd.server_agg.rounds import noise_runs
from phonograd.server_agg.settings.masked import MaskedSettings
from phonograd.server_agg.storage import cohorts, queries
from phonograd.server_agg.storage.tables import PUBLISHED, Phone, Round, Selected


def sample_phones(session: Session, round_: Round, now: float) -> bool:
    """Sample the phones of a private round from all enrolled ones, within the caller's transaction.

    The round's deadline counts from now. Returns False if the round has no sample, was sampled already, or has too few
    enrolled phones.
    """
    settings = StrategySettings.from_json(round_.strategy)
    if not settings.sampled or round_.population:
        return False
    phones = enrolled_phones(session)
    if len(phones) < settings.population:
        return False
    round_.population, round_.opened_at = len(phones), now
    session.add_all(Selected(round=round_.number, phone=name) for name in poisson_sample(phones, settings.sampling))
    session.flush()
    return True


def resample_phones(session: Session, round_: Round, now: float) -> None:
    """Sample the phones of a round again, after its settings changed."""
    session.execute(delete(Selected).where(Selected.round == round_.number))
    round_.population = 0
    sample_phones(session, round_, now)


def enrolled_phones(session: Session) -> list[str]:
    """The phones that a round can sample."""
    return list(session.scalars(select(Phone.name).where(Phone.role == "phone", Phone.revoked_at.is_(None))))


def hidden_by(round_: Round) -> tuple[str, ...]:
    """What protects the phones of a round with these settings: noise, a budget of it, masks."""
    settings, masked = StrategySettings.from_json(round_.strategy), None
    if round_.masked:
        masked = MaskedSettings.from_json(round_.masked)
    noise = settings.noise_multiplier if settings.private else masked.distributed_noise if masked else 0
    there = {"noise": noise > 0, "epsilon budget": settings.epsilon_budget is not None, "masks": masked is not None}
    return tuple(name for name, is_there in there.items() if is_there)


def halt_reason(session: Session, round_: Round) -> str | None:
    """Why no phone can take part in a private round; None if phones can, or if it is not private.

    Raises MissingExtraError without dp-accounting.
    """
    settings = StrategySettings.from_json(round_.strategy)
    if not settings.private:
        return None
    of_phones = cohorts.noise_of_rounds(session)
    if settings.epsilon_budget is not None and budget.over_budget(_published_settings(session), settings, of_phones):
        return (
            f"round {round_.number}: it would exceed the privacy budget, epsilon {settings.epsilon_budget:g} "
            f"at delta {settings.delta:g}; the model is final"
        )
    if settings.sampled and not round_.population:
        return (
            f"round {round_.number}: no phone is sampled before {settings.population} are enrolled (`population`); "
            "enrol phones with: phonograd tokens add"
        )
    return noise_runs.over(round_)


def privacy_spent_including(session: Session, round_: Round) -> PrivacySpent | None:
    """The epsilon spent by `round_` and all rounds before it, whoever added their noise; None if its strategy is not
    private, and its phones add none.
    """
    settings = StrategySettings.from_json(round_.strategy)
    by_phones = round_.masked is not None and MaskedSettings.from_json(round_.masked).distributed_noise > 0
    if not (settings.private or by_phones):
        return None
    return budget.privacy_spent_including(_published_settings(session), settings, cohorts.noise_of_rounds(session))


def _published_settings(session: Session) -> list[StrategySettings]:
    """The settings of all rounds whose outcome was published, including those rolled back since and failed ones.

    A failure counts because it reveals something about the round's updates. For rounds without noise, see
    RoundFigures.unbounded.
    """
    past = [round_ for round_ in queries.all_rounds(session) if round_.ending in (*PUBLISHED, "failed")]
    return [StrategySettings.from_json(round_.strategy) for round_ in past]
