"""Sums over the ledger's rows, of each round or of all; what comes back are rows of a query, with named columns."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Cast, cast, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from phonograd.server_agg.storage.tables import TRAFFIC_COUNTERS, WHOLE, Round, Traffic, Update


def _sum(column: InstrumentedAttribute[int]) -> Cast[int]:
    """The sum as a whole number: of 64-bit integers PostgreSQL makes a decimal one."""
    return cast(func.sum(column), WHOLE)


def update_sums(session: Session, by_round: bool = False) -> Sequence[Any]:
    """Of updates in one state and of one codec (and round): their number, sums, and when the first was announced.

    Columns: round (if `by_round`), state, codec, updates, length, received, requests, first, late; ordered by codec.
    """
    groups = (*((Update.round,) if by_round else ()), Update.state, Update.codec)
    sums = (
        func.count().label("updates"),
        _sum(Update.length).label("length"),
        _sum(Update.received_bytes).label("received"),
        _sum(Update.requests).label("requests"),
        func.min(Update.created_at).label("first"),
        func.count(Update.base_sha256).label("late"),
    )
    return session.execute(select(*groups, *sums).group_by(*groups).order_by(Update.codec)).all()


def traffic_sums(session: Session, by_round: bool = False) -> Sequence[Any]:
    """Of requests of one kind (and round): the sums of TRAFFIC_COUNTERS, under their names."""
    groups = (*((Traffic.round,) if by_round else ()), Traffic.kind)
    sums = (_sum(getattr(Traffic, name)).label(name) for name in TRAFFIC_COUNTERS)
    return session.execute(select(*groups, *sums).group_by(*groups)).all()


def rounds_by_ending(session: Session) -> dict[str, int]:
    """How many closed rounds ended in each way."""
    counted = select(Round.ending, func.count().label("rounds")).where(Round.closed_at.is_not(None))
    return {str(row.ending): row.rounds for row in session.execute(counted.group_by(Round.ending))}


def epsilon_spent(session: Session) -> float | None:
    """Epsilon up to the newest round that has one; None if none has."""
    newest = select(Round.epsilon).where(Round.epsilon.is_not(None)).order_by(Round.number.desc())
    return session.scalar(newest.limit(1))
