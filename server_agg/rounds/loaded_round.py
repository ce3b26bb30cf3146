"""The open round in memory: loaded from the ledger at the start and after each round, with snapshots for readers."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from msgspec import structs
from sqlalchemy.orm import Session

from phonograd.device_runtime.base.errors import StorageError
from phonograd.device_runtime.update.codecs import CODECS
from phonograd.server_agg.aggregation.settings import PRIVATE_STRATEGIES, StrategySettings
from phonograd.server_agg.rounds import noise_runs, opening, privacy, sweeping
from phonograd.server_agg.rounds.admission import Admission, closes_at
from phonograd.server_agg.rounds.aggregator import RoundAggregator
from phonograd.server_agg.rounds.masked_aggregator import MaskedAggregator
from phonograd.server_agg.rounds.progress import Progress
from phonograd.server_agg.rounds.publication import links_to_keep
from phonograd.server_agg.rounds.responses import ClosingProgress, OpenRound
from phonograd.server_agg.settings.masked import MaskedSettings
from phonograd.server_agg.settings.rules import RoundRules
from phonograd.server_agg.settings.server import ServerSettings
from phonograd.server_agg.storage import queries
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.state_folder import StateFolder
from phonograd.server_agg.storage.tables import Model, Round

# Of a round's row, what changes while it goes on as it is.
CHANGES = ("closing_at", "noise_half")


@dataclass(frozen=True)
class RoundSnapshot:
    """phones: those with an accepted update, which grow while the round is open; of one server, for several None."""

    open_round: OpenRound
    admission: Admission
    phones: set[str] | None

    def surely_admits(self, phone: str) -> bool:
        """Whether memory alone tells that `phone` may take part; if not, the ledger tells why, or that it may.

        "": whether memory alone tells all of the round.
        """
        if self.phones is None or not phone:
            return self.phones is not None
        rule = self.admission
        asks = rule.sampled or rule.run or rule.rules.max_clients or rule.closing or rule.halted or rule.row.masked
        return not asks and phone not in self.phones

    def has_all_of(self, row: Round) -> bool:
        """Whether only the number of updates can have changed; never of a private round, which others halt."""
        return is_same_round(row, self.admission.row, changes=()) and self.open_round.strategy not in PRIVATE_STRATEGIES

    def with_accepted(self, accepted: int) -> "RoundSnapshot":
        """The same round with so many updates."""
        return replace(self, open_round=structs.replace(self.open_round, accepted=accepted))


def is_same_round(one: Round, other: Round, changes: Collection[str] = CHANGES) -> bool:
    """Whether two rows are of one round with the same settings, opened at the same time."""
    names = (column.name for column in Round.__table__.columns if column.name not in changes)
    return all(getattr(one, name) == getattr(other, name) for name in names)


def take_snapshot(
    session: Session, row: Round, accepted: int, closing: ClosingProgress | None, phones: set[str] | None
) -> RoundSnapshot:
    """The round of a row, within a transaction."""
    halted, strategy = privacy.halt_reason(session, row), StrategySettings.from_json(row.strategy)
    rules, run = RoundRules.from_json(row.rules), noise_runs.run_of(row)
    open_round = OpenRound(
        round=row.number,
        base_sha256=row.base_sha256,
        model_bytes=session.get_one(Model, row.base_sha256).bytes,
        clients_per_round=rules.clients_per_round,
        strategy=strategy.strategy,
        weighting=strategy.weighting,
        accepted=accepted,
        closes_at=closes_at(row, rules),
        closing=closing,
        halted=halted,
        codecs=tuple(CODECS),
        masked=None if row.masked is None else MaskedSettings.from_json(row.masked).text,
        run=noise_runs.run_for_phones(row),
    )
    return RoundSnapshot(open_round, Admission(row, rules, strategy.sampled, halted, run), phones)


class LoadedRound:
    """The open round, from `load` to `close`; the next one takes its place in the same object.

    open_round, retry_seconds, poll_seconds, surely_admits, admission, linked, refresh: for any thread
    all else: for one thread at a time
    linked: the models whose links lead to the base model, the newest first
    progress: of the work on a closing round's model, which reports it from its own thread
    """

    _snapshot: RoundSnapshot

    def __init__(self, folder: StateFolder, ledger: Ledger, settings: ServerSettings):
        self.folder, self.ledger, self.settings = folder, ledger, settings
        self.progress = Progress(ledger.clock)
        self.linked: tuple[Model, ...] = ()
        self._aggregator: RoundAggregator | None = None
        self._loaded = False

    @property
    def open_round(self) -> OpenRound:
        """The open round as phones see it."""
        opened = self._snapshot.open_round
        if opened.closing is None:
            return opened
        return structs.replace(opened, closing=self.progress.since(opened.closing.since))

    @property
    def model_sha256(self) -> str:
        """The newest model, which phones may not get yet."""
        row = self._snapshot.admission.row
        return row.average_sha256 or row.base_sha256

    @property
    def retry_seconds(self) -> float:
        """Seconds after which a phone without a place should ask again."""
        return self._retry_seconds(self._snapshot.open_round.closing is not None)

    def _retry_seconds(self, closing: bool) -> float:
        usual = self.settings.retry_seconds
        return self.progress.retry_seconds(usual) if closing else usual

    @property
    def poll_seconds(self) -> float:
        """Seconds after which a phone of a masked round that waits should ask again."""
        return self.aggregator.stages.poll_seconds(self.retry_seconds)

    def surely_admits(self, phone: str) -> bool:
        """See RoundSnapshot."""
        return self._snapshot.surely_admits(phone)

    def admission(self, session: Session) -> Admission:
        """Who may take part, as of a transaction."""
        known = self._snapshot_in(session).admission  # read once: another thread may show another one meanwhile
        return replace(known, now=self.ledger.clock(), retry_seconds=self._retry_seconds(known.closing))

    def _snapshot_in(self, session: Session) -> RoundSnapshot:
        del session
        return self._snapshot

    @property
    def aggregator(self) -> RoundAggregator:
        """The open round's. Raises StorageError once the round is closed."""
        if self._aggregator is None:
            raise StorageError(f"{self.folder.root}: the server is stopping; retry when it is running again")
        return self._aggregator

    @property
    def closed(self) -> bool:
        """Whether the server is stopping."""
        return self._aggregator is None

    def check_running(self) -> None:
        """Raise StorageError once the round is closed."""
        _ = self.aggregator

    def load(self) -> None:
        """Load the open round from the ledger and delete the files that only earlier rounds needed."""
        self._loaded = False  # until all of this has succeeded
        with self.ledger.reading() as session:
            round_ = opening.expect_open_round(self.ledger, session)
            models = queries.all_models(session)
        ended, self._aggregator = self._aggregator, self._open_aggregator(round_)
        self.linked = links_to_keep(models, round_.base_sha256, self.settings.links_kept)
        self.publish()  # first: freeing the old round takes a while
        if ended is not None:
            ended.close()
        self.folder.noise_keys.delete_all_except(round_.number)  # afterwards nobody can subtract a closed round's noise
        if self.aggregator.settings.noisy:  # stored from the start, and so in any copy of the folder
            self.folder.noise_keys.get_or_create(round_.number)
        sweeping.sweep_folder(self.folder, self.ledger, self.settings)
        self.ledger.empty_log()  # of an ended masked round's messages
        self._loaded = True

    def _open_aggregator(self, row: Round) -> RoundAggregator:
        if row.masked is None:
            return RoundAggregator(row, self.folder, self.ledger)
        return MaskedAggregator(row, self.folder, self.ledger, self.settings.retry_seconds)

    def load_after_end(self) -> None:
        """Load the round after one that this server ended, and delete what the store had for that.

        With several servers, for the one that has the closing lock.
        """
        self.load()
        sweeping.sweep_store(self.folder, self.ledger, self.settings)

    def close(self) -> None:
        """Close the base model when the server stops."""
        if self._aggregator is not None:
            self._aggregator.close()
            self._aggregator = None

    def refresh(self) -> None:
        """See what other servers did; any thread may."""

    def follow(self) -> None:
        """Load the round that another server opened or changed, if one did."""

    def publish(self) -> None:
        """Take another snapshot of the ledger; any thread may."""
        with self.ledger.reading() as session:
            self._snapshot = self._read(session)

    def _read(self, session: Session) -> RoundSnapshot:
        """The open round within a transaction, to be shown once that is durable."""
        row = opening.expect_open_round(self.ledger, session)
        accepted = queries.count_updates(session, row.number, "accepted")
        known: RoundSnapshot | None = getattr(self, "_snapshot", None)
        if known is not None and known.has_all_of(row):
            return known.with_accepted(accepted)
        same = known is not None and known.admission.row.number == row.number
        phones = known.phones if known is not None and same else self._read_phones(session, row.number)
        closing = None if row.closing_at is None else self.progress.since(row.closing_at)
        return take_snapshot(session, row, accepted, closing, phones)

    def _read_phones(self, session: Session, number: int) -> set[str] | None:
        return {update.phone for update in queries.accepted_updates(session, number)}

    def sample_if_waiting(self) -> None:
        """Sample the phones of a round that opened when too few were enrolled."""
        row, strategy = self.aggregator.row, self.aggregator.settings
        if not strategy.sampled or row.population:
            return
        with self.ledger.reading() as session:
            if len(privacy.enrolled_phones(session)) < strategy.population:
                return
        with self.ledger.writing() as session:
            privacy.sample_phones(session, session.get_one(Round, row.number), self.ledger.clock())
        self.load()
