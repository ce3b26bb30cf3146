"""Closing the open round once it is complete: its model is made, then one transaction ends it and opens the next one.

A model that takes minutes (strategy `transfer`) is made by a thread, while the round is `closing`. A thread and not a
process: a killed server's work dies with it, so that two never write the same work files. The native engine, which
does nearly all of the work, does not hold the interpreter's lock.

A round whose model cannot be made fails, and the next one opens on the same base model. Its updates are kept for
inspection until `discard` deletes them.
"""

import contextlib
import logging
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from sqlalchemy.orm import Session

from phonograd.device_runtime.base.errors import PhonogradError, StoppedError, StorageError
from phonograd.device_runtime.formats.tensor_file import TensorFile, WrittenFile
from phonograd.server_agg.aggregation.model_writer import model_metadata
from phonograd.server_agg.aggregation.next_model import ModelFiles, NextModel, make_model
from phonograd.server_agg.aggregation.strategies import ClientUpdate, RoundContext, StrategySettings, strategy_of
from phonograd.server_agg.refusals import UnknownRoundError, one_line
from phonograd.server_agg.rounds import noise_runs, opening, partial_sums, privacy, publication, sweeping
from phonograd.server_agg.rounds.current_round import LiveRound
from phonograd.server_agg.rounds.log_events import log_event
from phonograd.server_agg.rounds.student import SlowJob, Students
from phonograd.server_agg.settings.rules import RoundRules
from phonograd.server_agg.settings.server import ServerSettings
from phonograd.server_agg.storage import queries
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.state_folder import StateFolder
from phonograd.server_agg.storage.tables import Ending, Model, Round, UpdateState

log = logging.getLogger(__name__)


def end_if_complete(current: LiveRound, slow: "SlowClosing") -> None:
    """End the open round if it has all its updates or its deadline has passed, and open the next one.

    If its model takes minutes, the round is closing until `slow` has made it. Raises StorageError if the disk fails
    (the accepted updates stay as they are) or if the server is stopping.
    """
    current.check_running()
    current.load_if_needed()
    current.follow()
    if (masked := current.masked) is not None:
        masked.advance(current.ledger.clock(), current.aggregator.closes_at)
        if masked.failure is not None:
            fail(current, masked.failure)
            return
    closing_now, ending = current.open_round.closing is not None, ending_of(current)
    if not closing_now and ending is None:
        current.due_since = None
        return
    if current.due_since is None:
        current.due_since = current.aggregator.row.closing_at or current.ledger.clock()
    if current.ledger.shared:
        _end_shared(current)
    elif closing_now:
        slow.resume()
    elif current.aggregator.settings.slow:
        slow.begin()
    else:
        close_round(current)


def _end_shared(current: LiveRound) -> None:
    """End a round that other servers may end too: under the closing lock, after they take no more updates for it.

    While another one has the lock, it is given this one's sum. A server that is killed loses the lock, and the next one
    makes the same model.
    """
    with current.ledger.closing_lock() as mine:
        if mine:
            _end_locked(current)
            return
    if current.open_round.closing is not None:
        partial_sums.share(current.aggregator, current.folder, current.ledger)


def _end_locked(current: LiveRound) -> None:
    current.follow()  # another server may have ended it
    if current.open_round.closing is None:
        if ending_of(current) is None:
            return
        with current.ledger.writing() as session:
            row = current.row_if_same(session)
            if row is None:
                return  # rolled back, or a server that started gave it other settings
            row.closing_at = row.closing_at or current.ledger.clock()
        current.follow()
        if current.open_round.closing is None:
            return  # this server lost the lock, and another one ended the round
    close_round(current)


def ending_of(current: LiveRound) -> Ending | None:
    """Why the open round should end now; None if it should not."""
    aggregator, accepted = current.aggregator, current.open_round.accepted
    over = aggregator.closes_at is not None and current.ledger.clock() >= aggregator.closes_at
    if aggregator.masked is not None:
        return "deadline" if aggregator.masked.over else None
    if aggregator.settings.private:
        # Neither earlier nor later, whoever came: when a model appears must not depend on the phones. The next round
        # samples others.
        return "deadline" if over and current.open_round.halted is None else None
    if accepted >= aggregator.rules.clients_per_round:
        return "full"
    enough = accepted >= max(aggregator.rules.min_clients, aggregator.strategy.min_updates)
    return "deadline" if over and enough else None


def close_round(current: LiveRound) -> None:
    """Make the model and end the round. A round without updates keeps its model, unless its strategy is private.

    A private round publishes a noisy model even without updates, so that nobody can tell whether a phone took part.

    Making the model again gives the same bits, so a crash in between does no harm. Raises StorageError for a disk
    error; the round then stays open.
    """

    def model() -> Model | None:
        aggregator = current.aggregator
        if current.ledger.shared:
            partial_sums.merge(aggregator, current.folder, current.ledger)
        updates = aggregator.stored()
        return _new_model(current, updates) if updates or aggregator.settings.private else None

    _end(current, model)


def _end(current: LiveRound, make: Callable[[], Model | None]) -> None:
    """End the round with the model that `make` puts in place, or as failed if it cannot."""
    row, rules = current.aggregator.row, current.aggregator.rules
    full = not current.aggregator.settings.private and current.open_round.accepted >= rules.clients_per_round
    ending: Ending = "full" if full else "deadline"
    try:
        record_model(current, ending, make())
    except Exception as error:
        _fail_or_retry(current, error)
        return
    current.load_after_end()
    log_event("round_closed", round=row.number, ending=ending, model=current.open_round.base_sha256)


def record_model(current: LiveRound, ending: Ending, model: Model | None) -> None:
    """End the round with `model`, whose file is in place, and open the next one. None: its base model."""
    with _ended_round(current, ending) as (session, row):
        if model is not None and session.get(Model, model.sha256) is None:
            session.add(model)
            session.flush()  # the rounds refer to it
            session.get_one(Model, row.base_sha256).buffers_seal = None  # no round begins with them again
        row.result_sha256 = row.base_sha256 if model is None else model.sha256
        session.flush()
        opening.add_round(session, current.ledger.clock(), row.number + 1, row.result_sha256, current.settings)


@contextlib.contextmanager
def _ended_round(current: LiveRound, ending: Ending) -> Iterator[tuple[Session, Round]]:
    """The transaction that ends the round, with its row; also records the privacy spent."""
    ledger, number = current.ledger, current.aggregator.row.number
    with ledger.reading() as session:  # accounting takes a while: do it without the write lock
        spent = privacy.privacy_spent_including(session, current.aggregator.row)
    with ledger.writing() as session:
        row = session.get_one(Round, number)
        if row.closed_at is not None:  # by a server that took over when this one lost its connection
            raise StorageError(f"round {number}: another server ended it")
        row.closed_at, row.ending, row.noise_half = ledger.clock(), ending, None
        if spent is not None:
            row.epsilon, row.epsilon_rdp = _finite(spent.epsilon), _finite(spent.epsilon_rdp)
        yield session, row


def _finite(epsilon: float) -> float | None:
    return epsilon if math.isfinite(epsilon) else None


def _new_model(current: LiveRound, updates: Sequence[ClientUpdate]) -> Model:
    aggregator, folder = current.aggregator, current.folder
    row, how = aggregator.row, aggregator.rules.how_published
    before = publication.files_of_model(row.base_sha256, folder, current.ledger)
    with publication.model_drafts(folder, noise_runs.goes_on(row)) as drafts:
        made = make_model(aggregator.aggregation, updates, before, drafts, how)
        seal = aggregator.aggregation.context.next_seal
        return publication.move_into_place(made, drafts, row, folder, current.ledger.clock(), seal)


def _fail_or_retry(current: LiveRound, error: Exception) -> None:
    """End the round as failed and open the next one on the same model.

    Raises StorageError for an error that may go away: a full disk, too many open files; but not a missing file. A
    private round's epsilon counts as spent: the failure itself reveals something about its updates.
    """
    if isinstance(error, StorageError):
        raise error
    cause = error.__cause__ or error
    if isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError):
        raise StorageError(str(error)) from error
    reason = one_line(str(error) if isinstance(error, PhonogradError) else f"{type(error).__name__}: {error}")
    fail(current, reason, error)


def fail(current: LiveRound, reason: str, error: Exception | None = None) -> None:
    """End the round as failed. Its updates are kept; masked ones, of which nobody can learn anything, are deleted."""
    kept: UpdateState = "kept" if current.masked is None else "discarded"
    with _ended_round(current, "failed") as (session, row):
        row.reason = reason
        for update in queries.accepted_updates(session, row.number):
            update.state, update.reason = kept, f"round {row.number} failed"
        session.flush()
        opening.add_round(session, current.ledger.clock(), row.number + 1, row.base_sha256, current.settings)
    log_event("round_failed" if kept == "kept" else "masked_round_failed", error, round=row.number, reason=reason)
    current.load_after_end()


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


class SlowClosing:
    """Closes one round at a time. lock: the coordinator's; callers of `begin` and `resume` hold it."""

    def __init__(self, current: LiveRound, lock: threading.Lock, maker: Students):
        self._current = current
        self._lock = lock
        self._maker = maker
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """From here on the open round is closing; its work begins. Raises StorageError."""
        current = self._current
        number = current.aggregator.row.number
        with current.ledger.writing() as session:
            session.get_one(Round, number).closing_at = current.ledger.clock()
        current.load()
        log_event("round_closing", round=number, accepted=current.open_round.accepted)
        self.resume()

    def resume(self) -> None:
        """Work on the round that is closing, unless a thread does, or has not stopped yet."""
        if self._thread is not None and self._thread.is_alive():
            return
        current = self._current
        row = current.aggregator.row
        base, updates = current.aggregator.base.path, current.aggregator.stored()
        work = current.folder.closing(row.number)
        transfer, metadata = opening.transfer_settings_of(row), model_metadata(row.number, row.base_sha256)
        job = SlowJob(row, transfer, base, updates, work, metadata)
        current.progress.begin()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(job, self._stop), name="closing")
        self._thread.start()

    def cancel(self) -> None:
        """Stop the work soon: its round was rolled back."""
        self._stop.set()

    def close(self) -> None:
        """Stop the work and wait until it has stopped; without the lock, which the work may need to end."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, job: SlowJob, stop: threading.Event) -> None:
        current, number = self._current, job.round.number
        folder = current.folder
        try:
            with publication.model_drafts(folder) as drafts:
                made: NextModel | Exception
                try:
                    made = self._make(job, drafts, stop)
                except StoppedError:
                    return
                except Exception as error:
                    made = error

                def model() -> Model:
                    if isinstance(made, Exception):
                        raise made
                    return publication.move_into_place(made, drafts, job.round, folder, current.ledger.clock())

                with self._lock:
                    if not current.closed and current.aggregator.row.number == number:  # else it was rolled back
                        _end(current, model)
        except StorageError as error:
            log_event("round_not_closed", error, round=number)  # the next tick tries again
        except Exception:  # a bug must not end in silence
            log.exception("round %d: closing it failed; retrying", number)

    def _make(self, job: SlowJob, drafts: ModelFiles, stop: threading.Event) -> NextModel:
        row, folder = job.round, self._current.folder
        settings, how = StrategySettings.from_json(row.strategy), RoundRules.from_json(row.rules).how_published
        progress = _logged(row.number, self._current.progress.report)

        def student(_updates: object, _base: object, draft: Path, _metadata: object) -> WrittenFile:
            return self._maker.make(job, draft, progress, stop.is_set)

        job.work.mkdir(exist_ok=True)
        with TensorFile(job.base) as base:
            aggregation = strategy_of(settings).begin(base, row.base_sha256, RoundContext(row.number))
            before = publication.files_of_model(row.base_sha256, folder, self._current.ledger)
            return make_model(aggregation, job.updates, before, drafts, how, student)


def _logged(number: int, report: Callable[[int, int], None]) -> Callable[[int, int], None]:
    """`report`, and a line in the log for each tenth of the work."""
    tenths = 0

    def progress(done: int, total: int) -> None:
        nonlocal tenths
        report(done, total)
        if total > 0 and (now := 10 * done // total) > tenths:
            tenths = now
            log_event("closing_progress", f"{100 * done / total:.0f} %", round=number, share=done / total)

    return progress
