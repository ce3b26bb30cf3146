"""A round's kind: its base model and strategy, and the sum of its updates, of which each can be read.

A MaskedAggregator is the other kind. Which one a round is, nobody else needs to know.
"""

import contextlib
import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol

from phonograd.device_runtime.base.errors import (
    OutOfMemoryError,
    PhonogradError,
    StorageError,
    UpdateError,
    WeightsError,
)
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.formats.tensor_file import TensorFile
from phonograd.device_runtime.update.update_file import DecodedUpdate, UpdateFile, UpdateInfo
from phonograd.server_agg.aggregation.fold import SumLimitError
from phonograd.server_agg.aggregation.late import decoded_file, decoded_on
from phonograd.server_agg.aggregation.privacy.ftrl.buffers import seal_of
from phonograd.server_agg.aggregation.settings import StrategySettings
from phonograd.server_agg.aggregation.strategies import strategy_of
from phonograd.server_agg.aggregation.strategy import Aggregation, ClientUpdate, Measures, RoundContext, Strategy
from phonograd.server_agg.masked.round import MaskedRound, NoStages
from phonograd.server_agg.refusals import (
    InvalidUpdateError,
    MalformedUpdateError,
    RoundClosingError,
)
from phonograd.server_agg.rounds import noise_runs
from phonograd.server_agg.rounds.admission import closes_at
from phonograd.server_agg.rounds.responses import OpenRound
from phonograd.server_agg.rounds.uploads import redact_path
from phonograd.server_agg.settings.rules import RoundRules
from phonograd.server_agg.storage import queries
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.state_folder import StateFolder
from phonograd.server_agg.storage.tables import Ending, Model, Round, Update, UpdateState

# Several servers close a round by folding what is stored: seconds, unlike a training.
CLOSING_SECONDS = 1.0


class OpenedUpdate(Protocol):
    """An update's open file, as far as all kinds of rounds look at it."""

    path: Path
    info: UpdateInfo


@dataclass(frozen=True)
class Arrival:
    """An update whose bytes came.

    file: open
    ahead: it, if it was measured and made durable before its turn
    origin: the base model of a late one
    """

    file: OpenedUpdate
    ahead: DecodedUpdate | None
    origin: str | None


class Taken(NamedTuple):
    """An update in an aggregation, with what the ledger keeps of it."""

    aggregation: Aggregation
    update: Arrival
    weight: int
    measures: Measures


class RoundAggregator:
    """Aggregates the updates of round `row`, with its base model open. Not thread-safe.

    Raises WeightsError for a damaged model.
    """

    # Of a round that failed: what becomes of its updates, and the event that is logged.
    after_failure: ClassVar[tuple[UpdateState, str]] = "kept", "round_failed"

    def __init__(self, row: Round, folder: StateFolder, ledger: Ledger):
        self.row = row
        self.rules = RoundRules.from_json(row.rules)
        self.settings = StrategySettings.from_json(row.strategy)
        self.strategy: Strategy = strategy_of(self.settings)
        self.base = TensorFile(folder.fetch(folder.model(row.base_sha256)))
        self.closes_at = closes_at(row, self.rules)
        self.stages: MaskedRound | NoStages = NoStages()
        self._buffers: TensorFile | None = None
        self._folder = folder
        self._ledger = ledger
        self._aggregation: Aggregation | None = None
        self._taken: Taken | None = None  # an update that is not recorded yet
        self.covered: set[str | None] = set()  # of several servers: the processes whose updates are in it
        self.shared = False  # whether other servers can read the sum of this process

    def close(self) -> None:
        """Close the base model, and the noise buffers."""
        self.base.close()
        if self._buffers is not None:
            self._buffers.close()

    def find_ending(self, opened: OpenRound, now: float) -> Ending | None:
        """Return why the round should end now; None if it should not."""
        over = self.closes_at is not None and now >= self.closes_at
        if self.settings.private:
            # Neither earlier nor later, whoever came: when a model appears must not depend on the phones. The next
            # round samples others.
            return "deadline" if over and opened.halted is None else None
        if opened.accepted >= self.rules.clients_per_round:
            return "full"
        enough = opened.accepted >= max(self.rules.min_clients, self.strategy.min_updates)
        return "deadline" if over and enough else None

    @property
    def aggregation(self) -> Aggregation:
        """The aggregation of the accepted updates, of several servers those of the `covered` processes: this one, and
        what was merged. Rebuilt from the stored updates if needed.

        Raises StorageError for a damaged stored update, SumLimitError.
        """
        if self._aggregation is None:
            aggregation, process = self._begin_aggregation(), self._ledger.process
            for row in self.rows():
                if row.process == process or process is None:
                    self.add_again(aggregation, row)
            self._aggregation, self.covered = aggregation, {process}
        return self._aggregation

    @contextlib.contextmanager
    def covering(self, process: str | None) -> Iterator[Aggregation]:
        """The aggregation, to which the block adds the updates of another process. If it fails, all of it is lost."""
        aggregation, self._aggregation = self.aggregation, None
        yield aggregation
        self._aggregation = aggregation
        self.covered.add(process)

    def add_again(self, aggregation: Aggregation, row: Update) -> None:
        """Add a stored update. Raises StorageError for a damaged one, SumLimitError."""
        path = self._folder.update(str(row.sha256))
        try:
            if (found := sha256_of_file(self._fetch(row))) != row.sha256:
                raise StorageError(f"{path}: changed, its SHA-256 is {found}; restore the state folder")
            self._add_stored(aggregation, row, path)
        except SumLimitError:
            raise
        except (OSError, WeightsError, UpdateError) as error:
            raise StorageError(f"{path}: cannot read an accepted update: {error}; restore the file") from error

    def _add_stored(self, aggregation: Aggregation, row: Update, path: Path) -> None:
        del path
        update = self.client_update(row)
        with update.open() as source:
            aggregation.add(source, update.weight, update.measures)

    def open(self, path: Path) -> AbstractContextManager[OpenedUpdate]:
        """Open an update's file. Raises MalformedUpdateError, StorageError if the disk can't read it."""
        try:
            return self._open(path)
        except OutOfMemoryError as error:  # too many open files, too
            raise StorageError(str(error)) from error
        except UpdateError as error:
            _require_readable(path)
            raise MalformedUpdateError(redact_path(error, path)) from error

    def _open(self, path: Path) -> AbstractContextManager[OpenedUpdate]:
        return UpdateFile(path)

    @contextlib.contextmanager
    def measured_ahead(self, path: Path) -> Iterator[DecodedUpdate | None]:
        """An update of this round, opened and, if that is of use, measured before its turn; any threads at once.

        None for all else: its turn finds out that it is late or masked, or why it is refused or can't be read.
        """
        with contextlib.ExitStack() as opened:
            yield self._measure_file(path, opened)

    def _measure_file(self, path: Path, opened: contextlib.ExitStack) -> DecodedUpdate | None:
        try:
            update = opened.enter_context(UpdateFile(path))
            if update.info.base_sha256 != self.row.base_sha256:
                return None
            decoded = opened.enter_context(decoded_on(self.base, update, None))
            if not self.strategy.aggregation.one_pass:
                decoded.norms()
        except (PhonogradError, OSError):
            return None
        return decoded

    def take(self, update: Arrival) -> tuple[int, Measures]:
        """Measure an update and aggregate it, which counts from `keep` on. Returns its weight and measures.

        Raises InvalidUpdateError for an update that does not fit, with nothing changed, RoundClosingError after the sum
        was given away, StorageError if the disk can't read it.
        """
        self._taken, path = None, update.file.path
        if self.shared:  # another server may have ended the round since
            raise RoundClosingError(f"round {self.row.number}: closing; send the update again", CLOSING_SECONDS)
        try:
            self._taken = self._take(update)
        except (WeightsError, UpdateError) as error:
            _require_readable(path)
            raise InvalidUpdateError(redact_path(error, path)) from error
        return self._taken.weight, self._taken.measures

    def _take(self, update: Arrival) -> Taken:
        weight, aggregation = self.strategy.weight(update.file.info), self.aggregation
        with self._source(update) as source:
            if not aggregation.one_pass:
                measures: Measures = aggregation.measure(source)
                self._aggregation = None
                aggregation.add(source, weight, measures)
                return Taken(aggregation, update, weight, measures)
            self._aggregation = None
            try:
                measures = aggregation.take(source, weight)
            except (WeightsError, UpdateError):
                self._aggregation = aggregation
                raise
            return Taken(aggregation, update, weight, measures)

    def take_back(self) -> None:
        """Take the update out again that `take` aggregated last: another server ended the round first, say."""
        if self._taken is not None and not self.settings.is_own:
            with self._source(self._taken.update) as source:
                self._taken.aggregation.add(source, -self._taken.weight, self._taken.measures)
            self.keep()

    def _source(self, update: Arrival) -> AbstractContextManager[DecodedUpdate]:
        assert isinstance(update.file, UpdateFile)
        if update.ahead is not None:
            return nullcontext(update.ahead)
        return decoded_on(self.base, update.file, self._late_base(update.origin))

    def keep(self) -> None:
        """What `take` aggregated last is recorded. Without this, all is aggregated again from the stored updates."""
        assert self._taken is not None
        self._aggregation, self._taken = self._taken.aggregation, None

    def _begin_aggregation(self) -> Aggregation:
        row = self.row
        key = self._folder.noise_keys.get_or_create(row.number) if self.settings.noisy else b""
        context = RoundContext(row.number, key, row.population)
        if (run := noise_runs.run_of(row)) is None:
            return self._begin(context)
        with self._ledger.reading() as session:
            base = session.get_one(Model, row.base_sha256)
        if base.buffers_sha256 is not None and self._buffers is None:
            self._buffers = TensorFile(self._folder.check_content(self._folder.noise_buffers(base.buffers_sha256)))
        seal = None if base.buffers_seal is None else bytes.fromhex(base.buffers_seal)
        context = replace(context, phones=self.rules.clients_per_round, run=run)
        try:
            return self._begin(replace(context, buffers=self._buffers, seal=seal, next_seal=seal_of(key)))
        except WeightsError as error:  # it is no update's fault, nor would another round begin
            raise StorageError(str(error)) from error

    def _begin(self, context: RoundContext) -> Aggregation:
        return self.strategy.begin(self.base, self.row.base_sha256, context)

    def invalidate(self) -> None:
        """Drop the aggregation: it is rebuilt from the stored updates."""
        self._aggregation = None

    def stored_updates(self) -> list[ClientUpdate]:
        """The accepted updates, opened when the aggregation reads them."""
        return [self.client_update(row) for row in self.rows()]

    def rows(self) -> list[Update]:
        """The accepted updates' rows."""
        with self._ledger.reading() as session:
            return queries.accepted_updates(session, self.row.number)

    def client_update(self, row: Update) -> ClientUpdate:
        """An accepted update, opened when the aggregation reads it."""
        measures: Measures = json.loads(row.measures or "{}")

        def open_update() -> AbstractContextManager[DecodedUpdate]:
            return decoded_file(self.base, self._fetch(row), self._late_base(row.base_sha256))

        return ClientUpdate(str(row.sha256), row.weight or 1, measures, open_update)

    def _fetch(self, row: Update) -> Path:
        return self._folder.fetch(self._folder.update(str(row.sha256)), self._folder.stored_update(row.id))

    def _late_base(self, origin: str | None) -> Path | None:
        return None if origin is None else self._folder.fetch(self._folder.model(origin))


def _require_readable(path: Path) -> None:
    """Raise StorageError if a refused update could not be read: that is not the phone's fault."""
    try:
        sha256_of_file(path)
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror}; check the disk") from error
