"""Opening a round, in the transaction that ends the previous one."""

import json

from msgspec.structs import asdict
from sqlalchemy.orm import Session

from phonograd.device_runtime.base.errors import StorageError
from phonograd.server_agg.rounds import noise_runs, privacy
from phonograd.server_agg.settings.server import ServerSettings
from phonograd.server_agg.storage import cohorts, queries
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.tables import Round
from phonograd.server_agg.transfer.settings import TransferSettings

REFUSALS_KEPT = 100  # rounds for which updates that were refused unsent stay in the ledger


def expect_open_round(ledger: Ledger, session: Session) -> Round:
    """The open round. Raises StorageError without one: the ledger is damaged."""
    round_ = queries.open_round(session)
    if round_ is None:
        raise StorageError(f"{ledger.name}: expected an open round, found none; restore the state folder")
    return round_


def add_round(
    session: Session,
    now: float,
    number: int,
    base_sha256: str,
    settings: ServerSettings | Round,
    run: str | None = None,
    average_sha256: str | None = None,
) -> Round:
    """Open round `number` with these settings, or those of an earlier round, within the caller's transaction.

    run: of dp-ftrl, if it begins with this round. average_sha256: of the rounds before on this base, if there are any.
    """
    round_ = Round(number=number, base_sha256=base_sha256, average_sha256=average_sha256, opened_at=now, population=0)
    apply_settings(round_, settings)
    noise_runs.set_step(session, round_, run)
    queries.delete_refused_unsent(session, number - REFUSALS_KEPT)
    cohorts.delete_messages(session)
    session.add(round_)
    session.flush()
    privacy.sample_phones(session, round_, now)
    return round_


def apply_settings(round_: Round, settings: ServerSettings | Round) -> None:
    """Give a round other settings, or those of an earlier round."""
    if isinstance(settings, Round):
        round_.rules, round_.strategy, round_.transfer = settings.rules, settings.strategy, settings.transfer
        round_.masked = settings.masked
        return
    round_.rules, round_.strategy = settings.rules.to_json(), settings.strategy.to_json()
    round_.masked = None if settings.masked is None else settings.masked.to_json()
    slow = settings.strategy.slow
    round_.transfer = json.dumps(asdict(settings.transfer), sort_keys=True) if slow else None


def round_with(settings: ServerSettings) -> Round:
    """A round with these settings that is in no ledger."""
    round_ = Round()
    apply_settings(round_, settings)
    return round_


def settings_changed(round_: Round, settings: ServerSettings) -> list[str]:
    """What a round would have otherwise with these settings, such as "clients per round: 5 -> 10"."""
    before, after = _settings_in(round_), _settings_in(round_with(settings))
    return [
        f"{name.replace('_', ' ')}: {before[name]} -> {value}"
        for name, value in after.items()
        if name in before and before[name] != value
    ]


def _settings_in(round_: Round) -> dict[str, object]:
    parts = (round_.strategy, round_.rules, round_.transfer, round_.masked)
    named = {name: value for part in parts if part for name, value in json.loads(part).items()}
    return {"masked": round_.masked is not None} | named


def transfer_settings_of(round_: Round) -> TransferSettings:
    """The settings of transfer learning of a round; the defaults for a round of another strategy."""
    return TransferSettings(**json.loads(round_.transfer or "{}"))
