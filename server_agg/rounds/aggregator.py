"""The open round's base model, strategy, and aggregation of its accepted updates."""

from phonograd.device_runtime.formats.tensor_file import TensorFile
from phonograd.server_agg.aggregation.strategies import (
    Aggregation,
    RoundContext,
    Strategy,
    StrategySettings,
    strategy_of,
)
from phonograd.server_agg.rounds.stored_update import StoredUpdate
from phonograd.server_agg.settings.rules import RoundRules
from phonograd.server_agg.storage import queries
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.state_folder import StateFolder
from phonograd.server_agg.storage.tables import Round


class RoundAggregator:
    """Aggregates the updates of round `row`, with its base model open. Not thread-safe.

    Raises WeightsError for a damaged model.
    """

    def __init__(self, row: Round, folder: StateFolder, ledger: Ledger):
        self.row = row
        self.rules = RoundRules.from_json(row.rules)
        self.settings = StrategySettings.from_json(row.strategy)
        self.strategy: Strategy = strategy_of(self.settings)
        self.base = TensorFile(folder.fetched(folder.model(row.base_sha256)))
        self._folder = folder
        self._ledger = ledger
        self._aggregation: Aggregation | None = None
        self._measuring: Aggregation | None = None

    def close(self) -> None:
        """Close the base model."""
        self.base.close()

    @property
    def closes_at(self) -> float | None:
        """The deadline in seconds since 1970, or None."""
        return closes_at(self.row, self.rules)

    @property
    def aggregation(self) -> Aggregation:
        """The aggregation of the accepted updates; rebuilt from the stored updates if needed.

        Raises StorageError for a damaged stored update.
        """
        if self._aggregation is None:
            aggregation = self._begun()
            for stored in self.stored():
                stored.add_to(aggregation)
            self._aggregation = aggregation
        return self._aggregation

    @property
    def measuring(self) -> Aggregation:
        """An aggregation to measure updates with, which has none of them."""
        if self._measuring is None:
            self._measuring = self._begun()
        return self._measuring

    def _begun(self) -> Aggregation:
        row, key = self.row, self._folder.noise_keys.get_or_create(self.row.number)
        return self.strategy.begin(self.base, row.base_sha256, RoundContext(row.number, key, row.population))

    def invalidate(self) -> None:
        """Drop the aggregation: without a later `keep` it is rebuilt from the stored updates."""
        self._aggregation = None

    def keep(self, aggregation: Aggregation) -> None:
        """Use `aggregation`, which holds exactly the accepted updates."""
        self._aggregation = aggregation

    def stored(self) -> list[StoredUpdate]:
        """The accepted updates."""
        with self._ledger.reading() as session:
            rows = queries.accepted_updates(session, self.row.number)
        return [StoredUpdate(row, self._folder) for row in rows]


def closes_at(row: Round, rules: RoundRules) -> float | None:
    """The deadline of a round in seconds since 1970, or None."""
    seconds = rules.deadline_seconds
    return None if seconds is None else row.opened_at + seconds
