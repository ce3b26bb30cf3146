"""The open round, loaded from the ledger at the start and after each round, with snapshots for readers."""

from dataclasses import dataclass, replace

from msgspec import structs
from sqlalchemy.orm import Session

from phonograd.device_runtime.base.errors import StorageError
from phonograd.device_runtime.update.codecs import CODECS
from phonograd.server_agg.aggregation.strategies import PRIVATE_STRATEGIES, StrategySettings
from phonograd.server_agg.masked.round import MaskedRound
from phonograd.server_agg.rounds import noise_runs, opening, privacy, sweeping
from phonograd.server_agg.rounds.admission import AdmissionState
from phonograd.server_agg.rounds.aggregator import RoundAggregator, closes_at
from phonograd.server_agg.rounds.masked_aggregator import MaskedAggregator
from phonograd.server_agg.rounds.progress import Progress
from phonograd.server_agg.rounds.publication import KeptLink, links_to_keep
from phonograd.server_agg.rounds.responses import OpenRound
from phonograd.server_agg.settings.masked import MaskedSettings
from phonograd.server_agg.settings.rules import RoundRules
from phonograd.server_agg.settings.server import ServerSettings
from phonograd.server_agg.storage import queries
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.state_folder import StateFolder
from phonograd.server_agg.storage.tables import Model, Round

# Several servers close a round by folding what is stored: seconds, unlike a training.
SHARED_CLOSING_SECONDS = 1.0


@dataclass(frozen=True)
class RoundSnapshot:
    """The open round as phones see it and as admission does.

    phones: those with an accepted update, which grow while the round is open; of one server, for several None.
    """

    open_round: OpenRound
    admission: AdmissionState
    row: Round
    phones: set[str] | None

    def surely_admits(self, phone: str) -> bool:
        """Whether memory alone tells that `phone` may take part; if not, the ledger tells why, or that it may."""
        state = self.admission
        asks = state.sampled or state.run or state.rules.max_clients or state.closing or state.halted or self.row.masked
        return not asks and self.phones is not None and phone not in self.phones

    def has_all_of(self, row: Round) -> bool:
        """Whether only the number of updates can have changed; never of a private round, which others halt."""
        same = all(getattr(row, one.name) == getattr(self.row, one.name) for one in Round.__table__.columns)
        return same and self.open_round.strategy not in PRIVATE_STRATEGIES


# Of a round's row, what changes while it goes on as it is.
CHANGES = ("closing_at", "noise_half")


def same_round(one: Round, other: Round) -> bool:
    """Whether two rows are of one round with the same settings, opened at the same time."""
    names = (column.name for column in Round.__table__.columns if column.name not in CHANGES)
    return all(getattr(one, name) == getattr(other, name) for name in names)


class LiveRound:
    """The open round, from `load` to `close`.

    open_round, admission_state, links: of a snapshot, which any thread may read. All else is for one thread at a time.
    links: those that lead to the round's base model, the newest first.
    progress: of the work on a closing round's model, which reports it from its own thread.
    due_since: since when it should be closed, in seconds since 1970; None until then.
    """

    _snapshot: RoundSnapshot

    def __init__(self, folder: StateFolder, ledger: Ledger, settings: ServerSettings):
        self.folder = folder
        self.ledger = ledger
        self.settings = settings
        self.progress = Progress(ledger.clock)
        self.links: tuple[KeptLink, ...] = ()
        self.due_since: float | None = None
        self._aggregator: RoundAggregator | None = None
        self._loaded = False
        self._phones: tuple[int, set[str] | None] = (0, None)  # of the newest snapshot's round

    def close(self) -> None:
        """Close the base model when the server stops."""
        if self._aggregator is not None:
            self._aggregator.close()
            self._aggregator = None

    @property
    def open_round(self) -> OpenRound:
        """The open round as phones see it."""
        opened = self._snapshot.open_round
        if opened.closing is None:
            return opened
        return structs.replace(opened, closing=self.progress.since(opened.closing.since))

    def surely_admits(self, phone: str) -> bool:
        """See RoundSnapshot."""
        return self._snapshot.surely_admits(phone)

    def admission_state(self, session: Session) -> AdmissionState:
        """The open round as admission sees it, within a transaction."""
        known = self._snapshot  # read once: another thread may show another one meanwhile
        row, state = known.row, known.admission
        if self.ledger.shared:  # another server may have opened a round since
            row = opening.expect_open_round(self.ledger, session)
            if not known.has_all_of(row):
                state = self._admission_of(row, privacy.halt_reason(session, row))
        if state.run is not None:
            left = (closes_at(row, state.rules) or 0.0) - self.ledger.clock()
            state = replace(state, seconds_left=max(left, 0.0))
        return replace(state, retry_seconds=self.retry_seconds) if state.closing and not self.ledger.shared else state

    def row_if_same(self, session: Session) -> Round | None:
        """The open round's row, within a transaction; None if it is no longer the one that was loaded.

        Other servers end rounds, sample their phones, and start with other settings.
        """
        row = opening.expect_open_round(self.ledger, session)
        return row if same_round(row, self.aggregator.row) else None

    @property
    def retry_seconds(self) -> float:
        """When a phone without a place should ask again."""
        usual = self.settings.retry_seconds
        if self._snapshot.open_round.closing is None:
            return usual
        return SHARED_CLOSING_SECONDS if self.ledger.shared else self.progress.retry_seconds(usual)

    @property
    def closed(self) -> bool:
        """Whether the server is stopping."""
        return self._aggregator is None

    @property
    def aggregator(self) -> RoundAggregator:
        """The open round's. Raises StorageError once the round is closed."""
        if self._aggregator is None:
            raise StorageError(f"{self.folder.root}: the server is stopping; retry when it is running again")
        return self._aggregator

    @property
    def masked(self) -> MaskedRound | None:
        """The stages of the open round, if it is masked. Raises as `aggregator` does."""
        return self.aggregator.masked

    def check_running(self) -> None:
        """Raise StorageError once the round is closed."""
        _ = self.aggregator

    def load(self) -> None:
        """Load the open round from the ledger and delete the files that only earlier rounds needed."""
        self._loaded = False  # until all of this has succeeded
        with self.ledger.reading() as session:
            round_ = opening.expect_open_round(self.ledger, session)
            models = queries.all_models(session)
        ended, self._aggregator = self._aggregator, self._aggregator_of(round_)
        self.links = links_to_keep(models, round_.base_sha256, self.settings.links_kept)
        self.publish()  # first: freeing the old round takes a while
        if ended is not None:
            ended.close()
        self.folder.noise_keys.delete_all_except(round_.number)  # afterwards nobody can subtract a closed round's noise
        if self.aggregator.settings.noisy:  # stored from the start, and so in any copy of the folder
            self.folder.noise_keys.get_or_create(round_.number)
        sweeping.sweep_folder(self.folder, self.ledger, self.settings)
        self.ledger.empty_log()  # of an ended masked round's messages
        self._loaded = True

    def _aggregator_of(self, row: Round) -> RoundAggregator:
        if row.masked is None:
            return RoundAggregator(row, self.folder, self.ledger)
        return MaskedAggregator(row, self.folder, self.ledger, self.settings.retry_seconds)

    def load_after_end(self) -> None:
        """Load the round after one that this server ended, and delete what the store had for that.

        With several servers, for the one that has the closing lock.
        """
        self.load()
        sweeping.sweep_store(self.folder, self.ledger, self.settings)

    def load_if_needed(self) -> None:
        """Load again if loading failed after the last round."""
        if not self._loaded:
            self.load()

    def follow(self) -> None:
        """Load the round that another server opened or changed, if one did."""
        if self.ledger.shared:
            self.publish()
            if not same_round(self._snapshot.row, self.aggregator.row):
                self.load()

    def publish(self) -> None:
        """Take another snapshot of the ledger; any thread may."""
        with self.ledger.reading() as session:
            found = self.seen(session)
        self.show(found)

    def show(self, snapshot: RoundSnapshot, phone: str | None = None) -> None:
        """From here on this is the open round. phone: whose update was accepted meanwhile."""
        if phone is not None and snapshot.phones is not None:
            snapshot.phones.add(phone)
        self._snapshot = snapshot

    def seen_with_one_more(self, session: Session) -> RoundSnapshot:
        """The open round once it has accepted one more update, within that transaction.

        Of one server only the number of its updates changes.
        """
        if self.ledger.shared:
            return self.seen(session)
        known = self._snapshot
        opened = structs.replace(known.open_round, accepted=known.open_round.accepted + 1)
        return replace(known, open_round=opened)

    def seen(self, session: Session) -> RoundSnapshot:
        """The open round within a transaction, to be shown once that is durable."""
        row = opening.expect_open_round(self.ledger, session)
        accepted = queries.count_updates(session, row.number, "accepted")
        known: RoundSnapshot | None = getattr(self, "_snapshot", None)
        if known is not None and known.has_all_of(row):
            return replace(known, open_round=structs.replace(known.open_round, accepted=accepted))
        halted = privacy.halt_reason(session, row)
        model_bytes = session.get_one(Model, row.base_sha256).bytes
        state, strategy = self._admission_of(row, halted), StrategySettings.from_json(row.strategy)
        open_round = OpenRound(
            round=row.number,
            base_sha256=row.base_sha256,
            model_bytes=model_bytes,
            clients_per_round=state.rules.clients_per_round,
            strategy=strategy.strategy,
            weighting=strategy.weighting,
            accepted=accepted,
            closes_at=closes_at(row, state.rules),
            closing=None if row.closing_at is None else self.progress.since(row.closing_at),
            halted=halted,
            codecs=tuple(CODECS),
            masked=None if row.masked is None else MaskedSettings.from_json(row.masked).text,
            run=noise_runs.told(row),
        )
        if self._phones[0] != row.number:  # read once a round
            phones = {update.phone for update in queries.accepted_updates(session, row.number)}
            self._phones = row.number, None if self.ledger.shared else phones
        return RoundSnapshot(open_round, state, row, self._phones[1])

    def _admission_of(self, row: Round, halted: str | None) -> AdmissionState:
        soon = self.ledger.shared and row.closing_at is not None
        return AdmissionState(
            number=row.number,
            base_sha256=row.base_sha256,
            rules=RoundRules.from_json(row.rules),
            sampled=StrategySettings.from_json(row.strategy).sampled,
            halted=halted,
            closing=row.closing_at is not None,
            retry_seconds=SHARED_CLOSING_SECONDS if soon else self.settings.retry_seconds,
            run=noise_runs.run_of(row),
            step=row.run_step or 0,
        )

    def sample_if_waiting(self) -> None:
        """Sample the phones of a round that opened when too few were enrolled."""
        row, strategy = self.aggregator.row, self.aggregator.settings
        if not strategy.sampled or row.population:
            return
        with self.ledger.reading() as session:
            if len(privacy.enrolled(session)) < strategy.population:
                return
        with self.ledger.writing() as session:
            privacy.sample_phones(session, session.get_one(Round, row.number), self.ledger.clock())
        self.load()
