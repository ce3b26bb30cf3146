"""The open round in memory: as phones see it and as admission does. Any thread may read it."""

from dataclasses import dataclass, replace

from msgspec import structs
from sqlalchemy.orm import Session

from phonograd.device_runtime.update.codecs import CODECS
from phonograd.server_agg.aggregation.strategies import PRIVATE_STRATEGIES, StrategySettings
from phonograd.server_agg.rounds import noise_runs, privacy
from phonograd.server_agg.rounds.admission import Admission
from phonograd.server_agg.rounds.responses import ClosingProgress, OpenRound
from phonograd.server_agg.settings.masked import MaskedSettings
from phonograd.server_agg.storage.tables import Model, Round

# Of a round's row, what changes while it goes on as it is.
CHANGES = ("closing_at", "noise_half")


@dataclass(frozen=True)
class RoundSnapshot:
    """phones: those with an accepted update, which grow while the round is open; of one server, for several None."""

    open_round: OpenRound
    admission: Admission
    row: Round
    phones: set[str] | None

    def surely_admits(self, phone: str) -> bool:
        """Whether memory alone tells that `phone` may take part; if not, the ledger tells why, or that it may.

        "": whether memory alone tells what there is to tell of the round.
        """
        if self.phones is None or not phone:
            return self.phones is not None
        state = self.admission
        asks = state.sampled or state.run or state.rules.max_clients or state.closing or state.halted or self.row.masked
        return not asks and phone not in self.phones

    def has_all_of(self, row: Round) -> bool:
        """Whether only the number of updates can have changed; never of a private round, which others halt."""
        same = all(getattr(row, one.name) == getattr(self.row, one.name) for one in Round.__table__.columns)
        return same and self.open_round.strategy not in PRIVATE_STRATEGIES

    def with_accepted(self, accepted: int) -> "RoundSnapshot":
        """The same round with so many updates."""
        return replace(self, open_round=structs.replace(self.open_round, accepted=accepted))


def is_same_round(one: Round, other: Round) -> bool:
    """Whether two rows are of one round with the same settings, opened at the same time."""
    names = (column.name for column in Round.__table__.columns if column.name not in CHANGES)
    return all(getattr(one, name) == getattr(other, name) for name in names)


def take_snapshot(
    session: Session, row: Round, accepted: int, closing: ClosingProgress | None, phones: set[str] | None
) -> RoundSnapshot:
    """The round of a row, within a transaction."""
    halted, strategy = privacy.halt_reason(session, row), StrategySettings.from_json(row.strategy)
    admission = Admission.of_round(row, halted)
    open_round = OpenRound(
        round=row.number,
        base_sha256=row.base_sha256,
        model_bytes=session.get_one(Model, row.base_sha256).bytes,
        clients_per_round=admission.rules.clients_per_round,
        strategy=strategy.strategy,
        weighting=strategy.weighting,
        accepted=accepted,
        closes_at=admission.closes_at,
        closing=closing,
        halted=halted,
        codecs=tuple(CODECS),
        masked=None if row.masked is None else MaskedSettings.from_json(row.masked).text,
        run=noise_runs.told(row),
    )
    return RoundSnapshot(open_round, admission, row, phones)
