"""Failed rounds, whose model could not be computed. The next round opens on the same base model.

The updates of a failed round are kept for inspection until `discard` deletes them.
"""

from phonograd.device_runtime.base.errors import PhonogradError, StorageError
from phonograd.server_agg.refusals import UnknownRoundError, one_line
from phonograd.server_agg.rounds import log_events, opening, sweeping
from phonograd.server_agg.rounds.closing import end_round
from phonograd.server_agg.rounds.current_round import LiveRound
from phonograd.server_agg.settings.server import ServerSettings
from phonograd.server_agg.storage import queries
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.state_folder import StateFolder
from phonograd.server_agg.storage.tables import Round


def is_disk_error(error: Exception) -> bool:
    """Whether an error may go away: a full disk, too many open files; but not a missing file."""
    if isinstance(error, StorageError):
        return True
    cause = error.__cause__ or error
    return isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError)


def fail_or_retry(current: LiveRound, error: Exception) -> None:
    """End the current round as failed and open the next one. Raises StorageError for a disk error: it may go away."""
    if isinstance(error, StorageError):
        raise error
    if is_disk_error(error):
        raise StorageError(str(error)) from error
    row = current.aggregator.row
    reason = fail_round(row, error, current.ledger, current.settings)
    log_events.round_failed(row.number, reason, error)
    current.load_after_end()


def fail_round(round_: Round, error: Exception, ledger: Ledger, settings: ServerSettings) -> str:
    """End a round as failed and open the next one on the same model. Returns the reason, `error` in one line.

    A private round's epsilon counts as spent: the failure itself reveals something about its updates. Raises
    StorageError; the round then stays open.
    """
    found = str(error) if isinstance(error, PhonogradError) else f"{type(error).__name__}: {error}"
    reason = one_line(found)
    with end_round(round_, "failed", ledger) as (session, row):
        row.reason = reason
        for update in queries.accepted_updates(session, row.number):
            update.state, update.reason = "kept", f"round {row.number} failed"
        session.flush()
        opening.add_round(session, ledger.clock(), row.number + 1, row.base_sha256, settings)
    return reason


def discard(number: int, folder: StateFolder, ledger: Ledger) -> int:
    """Delete the updates kept from failed round `number`. Returns how many.

    Raises UnknownRoundError if the round did not fail, StorageError.
    """
    with ledger.writing() as session:
        round_ = session.get(Round, number)
        if round_ is None or round_.ending != "failed":
            raise UnknownRoundError(f"round {number}: expected a failed round; see the report")
        kept = queries.kept_updates(session, number)
        for update in kept:
            update.state = "discarded"
        session.flush()
        needed = queries.needed_update_hashes(session)
    folder.delete_updates_except(needed)
    sweeping.delete_updates(folder, kept)
    return len(kept)
