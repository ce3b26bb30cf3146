"""Sums over the ledger's rows, of each round or of all; what comes back are rows of a query, with named columns.

Those of updates and traffic are read from the sums that the database keeps, whatever the number of rows.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from sqlalchemy import Case, Cast, ColumnElement, case, cast, func, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from phonograd.server_agg.storage.tables import (
    ASKED_KINDS,
    HTTP_COUNTERS,
    MASKED_KINDS,
    PUBLISHED,
    TCP_COUNTERS,
    WHOLE,
    Round,
    Traffic,
    TrafficSums,
    UpdateSums,
)

Direction: TypeAlias = Literal["up", "down"]
PERCENTILES: Mapping[int, str] = {50: "p50", 90: "p90", 100: "max"}


def _sum(column: ColumnElement[int] | InstrumentedAttribute[int]) -> Cast[int]:
    """The sum as a whole number: of 64-bit integers PostgreSQL makes a decimal one."""
    return cast(func.sum(column), WHOLE)


def update_sums(session: Session, by_round: bool = False) -> Sequence[Any]:
    """Of updates in one state and of one codec, "" for none (and round): their number and sums.

    Columns: round (if `by_round`), state, codec, updates, length, received, requests, late; ordered by codec.
    """
    groups = (*((UpdateSums.round,) if by_round else ()), UpdateSums.state, UpdateSums.codec)
    names = ("updates", "length", "received", "requests", "late")
    sums = (_sum(getattr(UpdateSums, name)).label(name) for name in names)
    wanted = select(*groups, *sums).where(UpdateSums.updates > 0)  # a state that all have left keeps its row
    return session.execute(wanted.group_by(*groups).order_by(UpdateSums.codec)).all()


def traffic_sums(session: Session, by_round: bool = False) -> Sequence[Any]:
    """Of requests of one kind (and round): the sums of HTTP_COUNTERS and TCP_COUNTERS, under their names.

    One of TCP_COUNTERS is None if it is not known of all.
    """
    groups = (*((TrafficSums.round,) if by_round else ()), TrafficSums.kind)
    of_http = (_sum(getattr(TrafficSums, name)).label(name) for name in HTTP_COUNTERS)
    of_tcp = (_sum_of_all(name).label(name) for name in TCP_COUNTERS)
    return session.execute(select(*groups, *of_http, *of_tcp).group_by(*groups)).all()


def _sum_of_all(name: str) -> Case[Any]:
    unknown = getattr(TrafficSums, name.replace("bytes", "unknown"))
    return case((func.sum(unknown) == 0, _sum(getattr(TrafficSums, name))))


def phone_percentiles(session: Session, direction: Direction, numbers: Sequence[int]) -> dict[int, dict[int, int]]:
    """For each of these rounds, PERCENTILES of the bytes that a phone sent, or was sent, headers included.

    Reads all rows of their traffic.

    By nearest rank, so each is the bytes of one phone. Phones that named themselves and sent some of an update ("up"),
    or asked for a model or links ("down"); no entry for a round without one.
    """
    # Bodies of other requests than uploads are nobody's: those that were refused unread.
    up_body = case((Traffic.kind.in_(("upload", *MASKED_KINDS)), Traffic.up_body_bytes), else_=0)
    up, down = Traffic.up_header_bytes + up_body, Traffic.down_header_bytes + Traffic.down_body_bytes
    asked = case((Traffic.kind.in_((*ASKED_KINDS, *ASKED_KINDS.values())), 1), else_=0)
    took_part = func.sum(up_body if direction == "up" else asked) > 0
    phones = (
        select(Traffic.round, cast(func.sum(up if direction == "up" else down), WHOLE).label("nbytes"))
        .where(Traffic.round.in_(numbers), Traffic.phone != "")
        .group_by(Traffic.round, Traffic.phone)
        .having(took_part)
        .subquery()
    )
    ranked = select(
        phones,
        func.row_number().over(partition_by=phones.c.round, order_by=phones.c.nbytes).label("rank"),
        func.count().over(partition_by=phones.c.round).label("phones"),
    ).subquery()
    wanted = (ranked.c.rank == _nearest_rank(ranked.c.phones, percent) for percent in PERCENTILES)
    by_round: dict[int, dict[int, int]] = defaultdict(dict)
    for row in session.execute(select(ranked).where(or_(*wanted))):
        for percent in PERCENTILES:
            if row.rank == _nearest_rank(row.phones, percent):
                by_round[row.round][percent] = row.nbytes
    return by_round


def _nearest_rank(phones: Any, percent: int) -> Any:
    """The place, from 1, of a percentile among `phones` sorted values; of a number or a column."""
    return (phones * percent + 99) // 100


def rounds_by_ending(session: Session) -> dict[str, int]:
    """How many closed rounds ended in each way."""
    counted = select(Round.ending, func.count().label("rounds")).where(Round.closed_at.is_not(None))
    return {str(row.ending): row.rounds for row in session.execute(counted.group_by(Round.ending))}


def epsilon_spent(session: Session) -> float | None:
    """Epsilon up to the newest private round that has one, infinite if none has; None without a private round."""
    published = ((Round.population > 0) | Round.run.is_not(None)) & Round.ending.in_(PUBLISHED)
    private = select(Round.epsilon).where(or_(Round.epsilon.is_not(None), published))
    newest = session.execute(private.order_by(Round.epsilon.is_(None), Round.number.desc()).limit(1)).one_or_none()
    if newest is None:
        return None
    return math.inf if newest.epsilon is None else newest.epsilon
