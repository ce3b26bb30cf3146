"""The open round as the keeper has it in hand: its rules, its base model, and its updates aggregated so far."""

from phonograd.device_runtime.formats.tensor_file import TensorFile
from phonograd.server_agg.aggregation.strategies import (
    Aggregation,
    RoundContext,
    Strategy,
    StrategySettings,
    strategy_of,
)
from phonograd.server_agg.rounds.stored import StoredUpdate
from phonograd.server_agg.settings.rules import RoundRules
from phonograd.server_agg.storage import queries
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.state_folder import StateFolder
from phonograd.server_agg.storage.tables import Ending, Round


class RoundInHand:
    """The round of `row`, its base model open for reading. Not thread-safe. Raises WeightsError for a damaged model."""

    def __init__(self, row: Round, folder: StateFolder, ledger: Ledger):
        self.row = row
        self.rules = RoundRules.from_json(row.rules)
        self.how = StrategySettings.from_json(row.strategy)
        self.strategy: Strategy = strategy_of(self.how)
        self.base = TensorFile(folder.model(row.base_sha256))
        self._folder = folder
        self._ledger = ledger
        self._aggregation: Aggregation | None = None

    def close(self) -> None:
        """Let go of the base model."""
        self.base.close()

    @property
    def closes_at(self) -> float | None:
        """The deadline, in seconds since 1970, if there is one."""
        seconds = self.rules.deadline_seconds
        return None if seconds is None else self.row.opened_at + seconds

    @property
    def aggregation(self) -> Aggregation:
        """The aggregation of the accepted updates; made from the stored ones where there is none.

        Raises StorageError for a stored update that is damaged.
        """
        if self._aggregation is None:
            context = RoundContext(self.row.number, self._folder.noise_keys.of(self.row.number), self.row.population)
            aggregation = self.strategy.begin(self.base, self.row.base_sha256, context)
            for stored in self.stored():
                stored.add_to(aggregation)
            self._aggregation = aggregation
        return self._aggregation

    def put_aside(self) -> None:
        """Forget the aggregation until `put_back`: if that never comes, it is made anew from what is stored."""
        self._aggregation = None

    def put_back(self, aggregation: Aggregation) -> None:
        """The aggregation holds the accepted updates again, and no other."""
        self._aggregation = aggregation

    def stored(self) -> list[StoredUpdate]:
        """The accepted updates."""
        with self._ledger.reading() as session:
            rows = queries.accepted_updates(session, self.row.number)
        return [StoredUpdate(row, self._folder) for row in rows]

    def ending(self, accepted: int, halted: bool) -> Ending | None:
        """Why the round ends now, with so many updates accepted; None if it does not."""
        if self.how.private:
            with self._ledger.reading() as session:
                drawn = len(queries.selected_phones(session, self.row.number))
            if 0 < drawn == accepted:
                return "full"
        elif accepted >= self.rules.clients_per_round:
            return "full"
        over = self.closes_at is not None and self._ledger.clock() >= self.closes_at
        enough = accepted >= max(self.rules.min_clients, self.strategy.fewest_members)
        # A private round ends in any case: another draw, another chance.
        return "deadline" if over and not halted and (enough or self.how.private) else None
