"""Responses to phones: the open round, and the receipt of an accepted update."""

from sqlalchemy.orm import Session

from phonograd.device_runtime.base.documents import Count, Record, Sha256
from phonograd.server_agg.aggregation.settings import PRIVATE_STRATEGIES, StrategySettings
from phonograd.server_agg.settings.rules import RoundRules
from phonograd.server_agg.storage import queries
from phonograd.server_agg.storage.tables import Round, Update


class ClosingProgress(Record, frozen=True, kw_only=True):
    """The work on a closing round's model. since: seconds since 1970; share: of the work done, 0 to 1; seconds_left: an
    estimate, None before there is one.
    """

    since: float
    share: float
    seconds_left: float | None


class OpenRound(Record, frozen=True, kw_only=True):
    """The open round, or the one that is closing. model_bytes: the size of the base model's file; closes_at: the
    deadline in seconds since 1970, or None; closing: None while the round is open; halted: why no phone can take part,
    or None; masked: the settings' text of a masked round, whose hash phones sign; run: of a round of dp-ftrl, what the
    phone's own count of its rounds needs, else None.
    """

    round: Count
    base_sha256: Sha256
    model_bytes: Count
    clients_per_round: Count
    strategy: str
    weighting: str
    accepted: Count
    closes_at: float | None
    closing: ClosingProgress | None
    halted: str | None
    codecs: tuple[str, ...]
    masked: str | None
    run: str | None

    @property
    def private(self) -> bool:
        """Whether it is differentially private. Only the operator may then see how many took part."""
        return self.strategy in PRIVATE_STRATEGIES


class Receipt(Record, frozen=True):
    """The answer to an accepted update. model_sha256: the model that phones have once the round has made one.

    accepted: the round's accepted updates so far; None in a private round, where phones may not know.
    """

    round: Count
    phone: str
    accepted: Count | None
    clients_per_round: Count
    round_closed: bool
    model_sha256: Sha256 | None
    bytes: Count


def receipt_in(opened: OpenRound, phone: str, nbytes: int) -> Receipt:
    """The receipt of an update of `nbytes` that the open round has just accepted."""
    accepted = None if opened.private else opened.accepted
    return Receipt(opened.round, phone, accepted, opened.clients_per_round, False, None, nbytes)


def receipt_of(session: Session, identifier: str) -> Receipt:
    """The receipt of an upload that was accepted or repeated."""
    row = session.get_one(Update, identifier)
    round_ = session.get_one(Round, row.round)
    private = StrategySettings.from_json(round_.strategy).private
    return Receipt(
        round=round_.number,
        phone=row.phone,
        accepted=None if private else queries.count_updates(session, round_.number, "accepted", "kept"),
        clients_per_round=RoundRules.from_json(round_.rules).clients_per_round,
        round_closed=round_.closed_at is not None,
        model_sha256=None if round_.result_sha256 is None else session.get_one(Round, round_.number + 1).base_sha256,
        bytes=row.length,
    )
