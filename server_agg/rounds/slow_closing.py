"""A model that takes minutes: strategy `transfer`'s student learns from the updates' models (paper P, eq. 4).

It is made while the round is closing, by a thread and not a process: a killed server's work dies with it, so that two
never write the same work files. The native engine, which does nearly all of the work, does not hold the interpreter's
lock.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from phonograd.device_runtime.base.errors import StoppedError, StorageError
from phonograd.device_runtime.formats.manifest import VOCABULARY, Artifacts
from phonograd.device_runtime.formats.tensor_file import TensorFile, WrittenFile
from phonograd.device_runtime.text.vocabulary import Vocabulary
from phonograd.server_agg.aggregation.next_model import ModelFiles, NextModel, Student, make_model
from phonograd.server_agg.aggregation.settings import StrategySettings
from phonograd.server_agg.aggregation.strategies import strategy_of
from phonograd.server_agg.aggregation.strategy import ClientUpdate, RoundContext
from phonograd.server_agg.rounds import opening, publication
from phonograd.server_agg.rounds.log_events import log_event
from phonograd.server_agg.rounds.progress import Progress
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.state_folder import StateFolder
from phonograd.server_agg.storage.tables import Model, Round
from phonograd.server_agg.transfer.closing import transfer
from phonograd.server_agg.transfer.settings import TransferSettings
from phonograd.server_agg.transfer.text import drawn_text, read_general, require_window

log = logging.getLogger(__name__)
End = Callable[[int, Callable[[], Model | None]], None]


class Students:
    """Makes the models of rounds of strategy `transfer`, with the distillation graph of `artifacts`."""

    def __init__(self, artifacts: Artifacts):
        self._artifacts = artifacts

    def require(self, settings: TransferSettings) -> None:
        """Check, at the server's start, that rounds with these settings can be closed.

        Raises ArtifactsError for artifacts without the graph, TextError for a text that is missing or too short.
        """
        artifacts, tokens = self._artifacts, settings.transfer_tokens
        artifacts.require_distill()
        general = read_general(settings)
        if general is None:
            ids = np.zeros(tokens, np.int64)
        else:
            ids = drawn_text(general, Vocabulary.load(artifacts.path(VOCABULARY)), tokens, 0)
        training = artifacts.manifest.training
        require_window(ids, training.minibatch, training.bptt)

    def student(
        self, settings: TransferSettings, work: Path, progress: Callable[[int, int], None], stop: Callable[[], int]
    ) -> Student:
        """What makes a round's model: minutes of work, without the coordinator's lock.

        The same updates give the same bytes, also if it goes on from the files that an earlier call left in `work`.
        progress hears (parts done, parts in all). The student raises StoppedError soon after `stop()` is not 0,
        StorageError for a disk error, which may go away.
        """
        artifacts, general = self._artifacts, read_general(settings)

        def make(updates: Sequence[ClientUpdate], base: Path, out: Path, metadata: Mapping[str, str]) -> WrittenFile:
            return transfer(artifacts, base, updates, settings, general, work, out, metadata, progress, stop)

        return make


class SlowClosing:
    """Makes one model at a time.

    progress: hears of the work
    end: ends a round, by its number, with the model that is then put in place; called with `lock` held
    """

    def __init__(
        self, folder: StateFolder, ledger: Ledger, progress: Progress, lock: threading.Lock, maker: Students, end: End
    ):
        self._folder, self._ledger, self._progress = folder, ledger, progress
        self._lock, self._maker, self._end = lock, maker, end
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def busy(self) -> bool:
        """Whether a thread works, or has not stopped yet."""
        return self._thread is not None and self._thread.is_alive()

    def begin(self, row: Round, base: Path, updates: Sequence[ClientUpdate]) -> None:
        """Work on a round that is closing, or go on with that; while not `busy`."""
        self._progress.begin()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(row, base, updates, self._stop), name="closing")
        self._thread.start()

    def cancel(self) -> None:
        """Stop the work soon: its round was rolled back."""
        self._stop.set()

    def close(self) -> None:
        """Stop the work and wait until it has stopped; without the lock, which the work may need to end."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, row: Round, base: Path, updates: Sequence[ClientUpdate], stop: threading.Event) -> None:
        folder = self._folder
        try:
            with publication.model_drafts(folder) as drafts:
                made: NextModel | Exception
                try:
                    made = self._make(row, base, updates, drafts, stop)
                except StoppedError:
                    return
                except Exception as error:
                    made = error

                def model() -> Model:
                    if isinstance(made, Exception):
                        raise made
                    return publication.move_into_place(made, drafts, row, folder, self._ledger.clock())

                with self._lock:
                    self._end(row.number, model)
        except StorageError as error:
            log_event("round_not_closed", error, round=row.number)  # the next tick tries again
        except Exception:  # a bug must not end in silence
            log.exception("round %d: closing it failed; retrying", row.number)

    def _make(
        self, row: Round, base: Path, updates: Sequence[ClientUpdate], drafts: ModelFiles, stop: threading.Event
    ) -> NextModel:
        settings = StrategySettings.from_json(row.strategy)
        work, progress = self._folder.closing(row.number), _log_tenths(row.number, self._progress.report)
        student = self._maker.student(opening.transfer_settings_of(row), work, progress, stop.is_set)
        work.mkdir(exist_ok=True)
        before, how, average = publication.inputs_of(row, self._folder, self._ledger)
        with TensorFile(base) as opened:
            aggregation = strategy_of(settings).begin(opened, row.base_sha256, RoundContext(row.number))
            return make_model(aggregation, updates, before, drafts, how, student, average)


def _log_tenths(number: int, report: Callable[[int, int], None]) -> Callable[[int, int], None]:
    tenths = 0

    def progress(done: int, total: int) -> None:
        nonlocal tenths
        report(done, total)
        if total > 0 and (now := 10 * done // total) > tenths:
            tenths = now
            log_event("closing_progress", f"{100 * done / total:.0f} %", round=number, share=done / total)

    return progress
