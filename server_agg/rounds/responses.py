"""What phones are told of rounds: the open one, and the receipt of an update that counts."""

from sqlalchemy.orm import Session

from phonograd.device_runtime.base.documents import Count, Record, Sha256
from phonograd.server_agg.aggregation.strategies import PRIVATE_STRATEGIES, StrategySettings
from phonograd.server_agg.settings.rules import RoundRules
from phonograd.server_agg.storage import queries
from phonograd.server_agg.storage.tables import Round, Update


class OpenRound(Record, frozen=True, kw_only=True):
    """The open round as a phone needs to see it; `model_bytes` is the size of the base model's file.

    closes_at: the deadline, in seconds since 1970, if it has one. halted: why no phone can take part, if none can.
    """

    round: Count
    base_sha256: Sha256
    model_bytes: Count
    clients_per_round: Count
    strategy: str
    weighting: str
    accepted: Count
    closes_at: float | None
    halted: str | None
    codecs: tuple[str, ...]

    @property
    def private(self) -> bool:
        """Whether its phones are drawn; how many of them came is then the operator's to know alone."""
        return self.strategy in PRIVATE_STRATEGIES


class Receipt(Record, frozen=True):
    """The answer to an accepted update. `model_sha256`: the round's result, once the round is closed.

    accepted: updates that the round has by now; None of a private round, whose phones are not to know.
    """

    round: Count
    phone: str
    accepted: Count | None
    clients_per_round: Count
    round_closed: bool
    model_sha256: Sha256 | None
    bytes: Count


def receipt_of(session: Session, identifier: str) -> Receipt:
    """The receipt of an upload that was accepted, or of one that was sent again."""
    row = session.get_one(Update, identifier)
    round_ = session.get_one(Round, row.round)
    private = StrategySettings.from_json(round_.strategy).private
    return Receipt(
        round=round_.number,
        phone=row.phone,
        accepted=None if private else queries.count_updates(session, round_.number, "accepted", "kept"),
        clients_per_round=RoundRules.from_json(round_.rules).clients_per_round,
        round_closed=round_.closed_at is not None,
        model_sha256=round_.result_sha256,
        bytes=row.length,
    )
