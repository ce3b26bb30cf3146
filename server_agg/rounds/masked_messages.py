"""What phones of a masked round send and are answered, in the open round or in one that is over."""

from collections.abc import Mapping
from typing import Any

from phonograd.server_agg.masked.stages import RequestKind
from phonograd.server_agg.refusals import OtherMessageError, RoundFailedError
from phonograd.server_agg.rounds import admission
from phonograd.server_agg.rounds.current_round import LiveRound
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.tables import PUBLISHED, Round


def take(
    current: LiveRound, kind: RequestKind, phone: str, number: int, message: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """Take a phone's message for round `number`; see MaskedRound.take. For one thread at a time.

    Raises RefusalError, RoundClosingError, StorageError.
    """
    row, masked = current.aggregator.row, current.masked
    if number != row.number:
        return _of_another(current.ledger, kind, number, row.number)
    if masked is None:
        raise OtherMessageError(f"round {number}: expected a masked round, this one is not; send an update")
    if kind == "keys":
        with current.ledger.reading() as session:
            admission.check_phone(session, current.admission_state(session), phone)
    return masked.take(kind, phone, message, current.ledger.clock(), current.aggregator.closes_at)


def _of_another(ledger: Ledger, kind: RequestKind, number: int, opened: int) -> Mapping[str, Any]:
    with ledger.reading() as session:
        row = session.get(Round, number)
    if row is None:
        raise OtherMessageError(f"round {number}: not here; round {opened} is open")
    if kind == "answer" and row.ending in PUBLISHED:
        return {}  # it was taken, or came too late: the phone has done its part
    why = f"failed: {row.reason}" if row.ending == "failed" else f"over ({row.ending})"
    raise RoundFailedError(f"round {number}: {why}; take part in round {opened}, or with its next model once sent")
