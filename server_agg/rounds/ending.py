"""The end of a round in the ledger: closed, failed, rolled back; and what goes with a failed one."""

import contextlib
import math
from collections.abc import Iterator

from sqlalchemy.orm import Session

from phonograd.device_runtime.base.errors import PhonogradError, StorageError
from phonograd.server_agg.refusals import UnknownRoundError, one_line
from phonograd.server_agg.rounds import noise_runs, opening, privacy, sweeping
from phonograd.server_agg.settings.server import ServerSettings
from phonograd.server_agg.storage import queries
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.state_folder import StateFolder
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


def roll_back(folder: StateFolder, ledger: Ledger, settings: ServerSettings | None, number: int) -> None:
    """End the open round without a result and open the next one on the model of round `number`.

    settings: of the next round; None: those of the round that was open.
    Raises UnknownRoundError for a round that does not exist or whose model file was deleted, RewoundNoiseError if that
    would undo noise of dp-ftrl.
    """
    with ledger.writing() as session:
        now, rounds = ledger.clock(), queries.all_rounds(session)
        results = {0: rounds[0].base_sha256} | {round_.number: round_.result_sha256 for round_ in rounds}
        sha256 = results.get(number)
        if sha256 is None:
            raise UnknownRoundError(
                f"round {number}: expected a closed round with a model, or 0 for the exported model; see the report"
            )
        open_ = opening.expect_open_round(ledger, session)
        noise_runs.refuse_rewind(session, open_, sha256)
        if not folder.has(folder.model(sha256)):
            raise UnknownRoundError(f"round {number}: its model file {sha256[:12]}… was deleted; see `models_kept`")
        discarded = queries.accepted_updates(session, open_.number)
        for update in discarded:
            update.state, update.reason = "discarded", f"rolled back to round {number}"
        for round_ in rounds:
            if round_.number > number and round_.rolled_back_at is None:
                round_.rolled_back_at = now
        open_.closed_at, open_.ending, open_.noise_half = now, "rollback", None
        session.flush()
        opening.add_round(session, now, open_.number + 1, sha256, settings or open_)
    sweeping.delete_updates(folder, discarded)
