"""Closing a round whose model takes minutes: the round is `closing` while a thread works, then it ends like any other.

A thread and not a process: a killed server's work dies with it, so that two never write the same work files. The native
engine, which does nearly all of the work, does not hold the interpreter's lock.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from phonograd.device_runtime.base.errors import StoppedError, StorageError
from phonograd.device_runtime.formats.tensor_file import WrittenFile
from phonograd.server_agg.aggregation.model_writer import model_metadata
from phonograd.server_agg.aggregation.strategies import ClientUpdate
from phonograd.server_agg.rounds import closing, failed_rounds, log_events, opening
from phonograd.server_agg.rounds.current_round import LiveRound
from phonograd.server_agg.rounds.publication import PublishedDraft, published
from phonograd.server_agg.storage.tables import Ending, Round
from phonograd.server_agg.transfer.settings import TransferSettings

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SlowJob:
    """What a round's model is made from. work: a folder of its own, kept until the round has ended; metadata: of the
    model's file.
    """

    round: Round
    transfer: TransferSettings
    base: Path
    updates: Sequence[ClientUpdate]
    work: Path
    metadata: Mapping[str, str]


class ModelMaker(Protocol):
    """Makes the models of rounds of a slow strategy."""

    def require(self, settings: TransferSettings) -> None:
        """Check, at the server's start, that rounds with these settings can be closed. Raises PhonogradError."""
        ...

    def make(
        self, job: SlowJob, out: Path, progress: Callable[[int, int], None], stop: Callable[[], int]
    ) -> WrittenFile:
        """Write a round's model to `out`: minutes of work, without the coordinator's lock.

        The same job gives the same bytes, also if it goes on from the work files that an earlier call left. progress
        hears (parts done, parts in all).

        Raises StoppedError soon after `stop()` is not 0, StorageError for a disk error, which may go away.
        """
        ...


class SlowClosing:
    """Closes one round at a time. lock: the coordinator's; callers of `begin` and `resume` hold it."""

    def __init__(self, current: LiveRound, lock: threading.Lock, maker: ModelMaker):
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
        log_events.round_closing(number, current.open_round.accepted)
        self.resume()

    def resume(self) -> None:
        """Work on the round that is closing, unless a thread does, or has not stopped yet."""
        if self._thread is not None and self._thread.is_alive():
            return
        current = self._current
        row = current.aggregator.row
        updates = [update.client_update for update in current.aggregator.stored()]
        base, work = current.aggregator.base.path, current.folder.closing(row.number)
        transfer = opening.transfer_settings_of(row)
        job = SlowJob(row, transfer, base, updates, work, model_metadata(row.number, row.base_sha256))
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
        draft = self._current.folder.new_draft()
        try:
            with contextlib.ExitStack() as resources:
                made = self._made(job, draft, stop, resources)
                with self._lock:
                    if made is not None and self._is_current(job.round):
                        self._end(job.round, made)
        except StorageError as error:
            log_events.round_not_closed(job.round.number, error)  # the next tick tries again
        except Exception:  # a bug must not end in silence
            log.exception("round %d: closing it failed; retrying", job.round.number)
        finally:
            draft.unlink(missing_ok=True)

    def _made(
        self, job: SlowJob, draft: Path, stop: threading.Event, resources: contextlib.ExitStack
    ) -> PublishedDraft | Exception | None:
        """What the round publishes, while `resources` is open, or why there is none; None once the work was stopped."""
        folder, ledger, number = self._current.folder, self._current.ledger, job.round.number
        try:
            job.work.mkdir(exist_ok=True)
            written = self._maker.make(job, draft, _logged(number, self._current.progress.report), stop.is_set)
            return resources.enter_context(published(job.round, job.base, draft, written, folder, ledger))
        except StoppedError:
            return None
        except Exception as error:
            return error

    def _is_current(self, row: Round) -> bool:
        """Whether the round is still closing, and was not rolled back."""
        return not self._current.closed and self._current.aggregator.row.number == row.number

    def _end(self, row: Round, made: PublishedDraft | Exception) -> None:
        current = self._current
        if isinstance(made, Exception):
            failed_rounds.fail_or_retry(current, made)
            return
        model = made.move_into_place(current.folder, current.ledger.clock())
        accepted = current.open_round.accepted
        ending: Ending = "full" if accepted >= current.aggregator.rules.clients_per_round else "deadline"
        closing.record_model(row, ending, model, current.ledger, current.settings)
        current.load_after_end()
        log_events.round_closed(row.number, ending, current.open_round.base_sha256)


def _logged(number: int, report: Callable[[int, int], None]) -> Callable[[int, int], None]:
    """`report`, and a line in the log for each tenth of the work."""
    tenths = 0

    def progress(done: int, total: int) -> None:
        nonlocal tenths
        report(done, total)
        if total > 0 and (now := 10 * done // total) > tenths:
            tenths = now
            log_events.closing_progress(number, done / total)

    return progress
