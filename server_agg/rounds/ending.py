"""The end of a round in the ledger, as closed or as failed."""

import contextlib
import math
from collections.abc import Iterator

from sqlalchemy.orm import Session

from phonograd.device_runtime.base.errors import PhonogradError, StorageError
from phonograd.server_agg.refusals import one_line
from phonograd.server_agg.rounds import privacy
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.tables import Ending, Round


@contextlib.contextmanager
def end_round(ledger: Ledger, opened: Round, ending: Ending) -> Iterator[tuple[Session, Round]]:
    """The transaction that ends the round, with its row; also records the privacy spent."""
    with ledger.reading() as session:  # accounting takes a while: do it without the write lock
        spent = privacy.privacy_spent_including(session, opened)
    with ledger.writing() as session:
        row = session.get_one(Round, opened.number)
        if row.closed_at is not None:  # by a server that took over when this one lost its connection
            raise StorageError(f"round {row.number}: another server ended it")
        row.closed_at, row.ending, row.noise_half = ledger.clock(), ending, None
        if spent is not None:
            row.epsilon, row.epsilon_rdp = _finite(spent.epsilon), _finite(spent.epsilon_rdp)
        yield session, row


def _finite(epsilon: float) -> float | None:
    return epsilon if math.isfinite(epsilon) else None


def reason_of(error: Exception) -> str:
    """Why a round failed whose model could not be made.

    Raises StorageError for an error that may go away: a full disk, too many open files; but not a missing file. A
    private round's epsilon counts as spent: the failure itself reveals something about its updates.
    """
    if isinstance(error, StorageError):
        raise error
    cause = error.__cause__ or error
    if isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError):
        raise StorageError(str(error)) from error
    return one_line(str(error) if isinstance(error, PhonogradError) else f"{type(error).__name__}: {error}")
