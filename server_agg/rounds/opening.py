"""Opening a round, in the transaction that ends the previous one."""

import json
from dataclasses import asdict

from sqlalchemy.orm import Session

from phonograd.device_runtime.base.errors import StorageError
from phonograd.server_agg.rounds import privacy
from phonograd.server_agg.settings.server import ServerSettings
from phonograd.server_agg.storage import queries
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.tables import Round
from phonograd.server_agg.transfer.settings import TransferSettings

REFUSALS_KEPT = 100  # rounds for which updates that were refused unsent stay in the ledger


def expect_open_round(ledger: Ledger, session: Session) -> Round:
    """The open round. Raises StorageError if there is none: the ledger is damaged."""
    round_ = queries.open_round(session)
    if round_ is None:
        raise StorageError(f"{ledger.name}: expected an open round, found none; restore the state folder")
    return round_


def add_round(session: Session, now: float, number: int, base_sha256: str, settings: ServerSettings) -> Round:
    """Open round `number` with these settings, within the caller's transaction."""
    return _added(session, Round(number=number, base_sha256=base_sha256, opened_at=now, **_stored(settings)))


def add_round_like(session: Session, now: float, base_sha256: str, before: Round) -> Round:
    """Open the round after `before`, with its settings."""
    stored = {name: getattr(before, name) for name in ("rules", "strategy", "transfer")}
    return _added(session, Round(number=before.number + 1, base_sha256=base_sha256, opened_at=now, **stored))


def apply_settings(round_: Round, settings: ServerSettings) -> None:
    """Give a round other settings."""
    for name, value in _stored(settings).items():
        setattr(round_, name, value)


def _stored(settings: ServerSettings) -> dict[str, str | None]:
    """The columns of a round that hold its settings."""
    transfer = json.dumps(asdict(settings.transfer), sort_keys=True) if settings.strategy.slow else None
    return {"rules": settings.rules.to_json(), "strategy": settings.strategy.to_json(), "transfer": transfer}


def transfer_settings_of(round_: Round) -> TransferSettings:
    """The settings of transfer learning of a round; the defaults for a round of another strategy."""
    return TransferSettings(**json.loads(round_.transfer or "{}"))


def _added(session: Session, round_: Round) -> Round:
    queries.delete_refused_unsent(session, round_.number - REFUSALS_KEPT)
    round_.population = 0
    session.add(round_)
    session.flush()
    privacy.sample_phones(session, round_, round_.opened_at)
    return round_
