"""The open round's base model and strategy, its accepted updates in the state folder, and their aggregation."""

import contextlib
import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from phonograd.device_runtime.base.errors import PhonogradError, StorageError, UpdateError, WeightsError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.formats.tensor_file import TensorFile
from phonograd.device_runtime.update.update_file import DecodedUpdate, UpdateFile, UpdateInfo
from phonograd.server_agg.aggregation.fold import SumLimitError
from phonograd.server_agg.aggregation.late import decoded_on
from phonograd.server_agg.aggregation.privacy.ftrl.sealing import seal_of
from phonograd.server_agg.aggregation.strategies import (
    Aggregation,
    ClientUpdate,
    Measures,
    RoundContext,
    Strategy,
    StrategySettings,
    strategy_of,
)
from phonograd.server_agg.masked.round import MaskedRound
from phonograd.server_agg.rounds import noise_runs
from phonograd.server_agg.settings.rules import RoundRules
from phonograd.server_agg.storage import queries
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.state_folder import StateFolder
from phonograd.server_agg.storage.tables import Model, Round, Update


class OpenedUpdate(Protocol):
    """An update's open file, as far as all kinds of rounds look at it."""

    path: Path
    info: UpdateInfo


class RoundAggregator:
    """Aggregates the updates of round `row`, with its base model open. Not thread-safe.

    Raises WeightsError for a damaged model.
    """

    masked: MaskedRound | None = None  # the stages of a masked round

    def __init__(self, row: Round, folder: StateFolder, ledger: Ledger):
        self.row = row
        self.rules = RoundRules.from_json(row.rules)
        self.settings = StrategySettings.from_json(row.strategy)
        self.strategy: Strategy = strategy_of(self.settings)
        self.base = TensorFile(folder.fetched(folder.model(row.base_sha256)))
        self._buffers: TensorFile | None = None
        self._folder = folder
        self._ledger = ledger
        self._aggregation: Aggregation | None = None
        self._taken: Aggregation | None = None  # with an update that is not recorded yet
        self.covered: set[str | None] = set()  # of several servers: the processes whose updates are in it
        self.shared = False  # whether other servers can read the sum of this process

    def close(self) -> None:
        """Close the base model, and the noise buffers."""
        self.base.close()
        if self._buffers is not None:
            self._buffers.close()

    @property
    def closes_at(self) -> float | None:
        """The deadline in seconds since 1970, or None."""
        return closes_at(self.row, self.rules)

    @property
    def aggregation(self) -> Aggregation:
        """The aggregation of the accepted updates, of several servers those of the `covered` processes: this one, and
        what was merged. Rebuilt from the stored updates if needed.

        Raises StorageError for a damaged stored update, SumLimitError.
        """
        if self._aggregation is None:
            aggregation, process = self._begun(), self._ledger.process
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
            if (found := sha256_of_file(self._fetched(row))) != row.sha256:
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

    def opened(self, path: Path) -> AbstractContextManager[OpenedUpdate]:
        """Open an update's file. Raises UpdateError."""
        return UpdateFile(path)

    def weight(self, info: UpdateInfo) -> int:
        """An update's weight in the ledger."""
        return self.strategy.weight(info)

    @contextlib.contextmanager
    def measured_ahead(self, path: Path) -> Iterator[DecodedUpdate | None]:
        """An update of this round, opened and, if that is of use, measured before its turn; any threads at once.

        None for all else: its turn finds out that it is late or masked, or why it is refused or can't be read.
        """
        with contextlib.ExitStack() as opened:
            yield self._measured(path, opened)

    def _measured(self, path: Path, opened: contextlib.ExitStack) -> DecodedUpdate | None:
        if self.masked is not None:
            return None
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

    def take(self, update: OpenedUpdate, ahead: DecodedUpdate | None, origin: str | None, weight: int) -> Measures:
        """Measure an update and aggregate it, which counts from `keep` on. origin: the base model of a late update.

        ahead: it, as of `measured_ahead`. Raises WeightsError or UpdateError for an update that does not fit, with
        nothing changed.
        """
        self._taken, aggregation = None, self.aggregation
        with self._source(update, ahead, origin) as source:
            measures = self._took(aggregation, source, weight)
        self._taken = aggregation
        return measures

    def _took(self, aggregation: Aggregation, source: DecodedUpdate, weight: int) -> Measures:
        if not aggregation.one_pass:
            measures: Measures = aggregation.measure(source)
            self._aggregation = None
            aggregation.add(source, weight, measures)
            return measures
        self._aggregation = None
        try:
            return aggregation.take(source, weight)
        except (WeightsError, UpdateError):
            self._aggregation = aggregation
            raise

    def take_back(
        self, update: OpenedUpdate, ahead: DecodedUpdate | None, origin: str | None, weight: int, measures: Measures
    ) -> None:
        """Take the update out again that `take` aggregated last: another server ended the round first, say."""
        if self._taken is not None and self._ledger.shared and not self.settings.is_own:
            with self._source(update, ahead, origin) as source:
                self._taken.add(source, -weight, measures)
            self.keep()

    def _source(
        self, update: OpenedUpdate, ahead: DecodedUpdate | None, origin: str | None
    ) -> AbstractContextManager[DecodedUpdate]:
        assert isinstance(update, UpdateFile)
        return nullcontext(ahead) if ahead else decoded_on(self.base, update, self._late_base(origin))

    def keep(self) -> None:
        """What `take` aggregated last is recorded. Without this, all is aggregated again from the stored updates."""
        self._aggregation, self._taken = self._taken, None

    def _begun(self) -> Aggregation:
        row = self.row
        key = self._folder.noise_keys.get_or_create(row.number) if self.settings.noisy else b""
        context = RoundContext(row.number, key, row.population)
        if (run := noise_runs.run_of(row)) is None:
            return self._begin(context)
        with self._ledger.reading() as session:
            base = session.get_one(Model, row.base_sha256)
        if base.buffers_sha256 is not None and self._buffers is None:
            self._buffers = TensorFile(self._folder.checked(self._folder.noise_buffers(base.buffers_sha256)))
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

    def stored(self) -> list[ClientUpdate]:
        """The accepted updates, opened when the aggregation reads them."""
        return [self.client_update(row) for row in self.rows()]

    def rows(self) -> list[Update]:
        """The accepted updates' rows."""
        with self._ledger.reading() as session:
            return queries.accepted_updates(session, self.row.number)

    def client_update(self, row: Update) -> ClientUpdate:
        """An accepted update, opened when the aggregation reads it."""
        measures: Measures = json.loads(row.measures or "{}")
        return ClientUpdate(str(row.sha256), row.weight or 1, measures, lambda: self._opened(row))

    @contextlib.contextmanager
    def _opened(self, row: Update) -> Iterator[DecodedUpdate]:
        its_base = self._late_base(row.base_sha256)
        with UpdateFile(self._fetched(row)) as update, decoded_on(self.base, update, its_base) as source:
            yield source

    def _fetched(self, row: Update) -> Path:
        return self._folder.fetched(self._folder.update(str(row.sha256)), self._folder.stored_update(row.id))

    def _late_base(self, origin: str | None) -> Path | None:
        return None if origin is None else self._folder.fetched(self._folder.model(origin))


def closes_at(row: Round, rules: RoundRules) -> float | None:
    """The deadline of a round in seconds since 1970, or None."""
    seconds = rules.deadline_seconds
    return None if seconds is None else row.opened_at + seconds
