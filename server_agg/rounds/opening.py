"""Opening a round, in the transaction that ends the previous one."""

from sqlalchemy.orm import Session

from phonograd.device_runtime.base.errors import StorageError
from phonograd.server_agg.rounds import privacy
from phonograd.server_agg.settings.server import ServerSettings
from phonograd.server_agg.storage import queries
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.tables import Round


def expect_open_round(ledger: Ledger, session: Session) -> Round:
    """The open round. Raises StorageError if there is none: the ledger is damaged."""
    round_ = queries.open_round(session)
    if round_ is None:
        raise StorageError(f"{ledger.path}: expected an open round, found none; restore the state folder")
    return round_


def add_round(session: Session, now: float, number: int, base_sha256: str, settings: ServerSettings) -> Round:
    """Open round `number` with these settings, within the caller's transaction."""
    return add_round_like(session, now, number, base_sha256, settings.rules.to_json(), settings.strategy.to_json())


def add_round_like(session: Session, now: float, number: int, base_sha256: str, rules: str, strategy: str) -> Round:
    """`add_round` with another round's `rules` and `strategy`, as JSON."""
    round_ = Round(
        number=number,
        base_sha256=base_sha256,
        rules=rules,
        strategy=strategy,
        population=0,
        opened_at=now,
    )
    session.add(round_)
    session.flush()
    privacy.sample_phones(session, round_, now)
    return round_
