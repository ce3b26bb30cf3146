"""Sums over the ledger's rows, of each round or of all; what comes back are rows of a query, with named columns.

Those of closed rounds are kept (`figures`); those of other rounds are read from their rows.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

from sqlalchemy import Case, Cast, ColumnElement, Select, bindparam, case, cast, func, or_, select, union_all
from sqlalchemy.orm import InstrumentedAttribute, Session

from phonograd.server_agg.storage.tables import (
    ASKED_KINDS,
    HTTP_COUNTERS,
    MASKED_KINDS,
    PUBLISHED,
    TCP_COUNTERS,
    WHOLE,
    Round,
    RoundFigures,
    Traffic,
    TrafficSums,
    Update,
    UpdateSums,
)

Direction: TypeAlias = Literal["up", "down"]
PERCENTILES: Mapping[int, str] = {50: "p50", 90: "p90", 100: "max"}
OF_PHONES = tuple(f"{direction}_{name}" for direction in get_args(Direction) for name in PERCENTILES.values())


def unkept(session: Session, closed: bool = False) -> list[int]:
    """The rounds whose rows must be read: the open one, and others of which nothing is kept as they are now.

    closed: without the open one.
    """
    same = (RoundFigures.round == Round.number) & (RoundFigures.as_of == RoundFigures.changes)
    wanted = select(Round.number).outerjoin(RoundFigures, same).where(RoundFigures.round.is_(None))
    return list(session.scalars(wanted.where(Round.closed_at.is_not(None)) if closed else wanted))


def among(column: InstrumentedAttribute[int], numbers: Sequence[int]) -> ColumnElement[bool]:
    """Whether a column has one of these numbers. They are part of the statement: databases limit its parameters."""
    return column.in_(bindparam(None, numbers, expanding=True, literal_execute=True))


def updates_in(numbers: Sequence[int]) -> Select[Any]:
    """What UpdateSums has of these rounds, from their rows."""
    columns: Any = (Update.round, Update.state, func.coalesce(Update.codec, "").label("codec"))
    sums = (
        func.count().label("updates"),
        _sum(Update.length).label("length"),
        _sum(Update.received_bytes).label("received"),
        _sum(Update.requests).label("requests"),
        func.count(Update.base_sha256).label("late"),
    )
    wanted: Select[Any] = select(*columns, *sums).where(among(Update.round, numbers))
    return wanted.group_by(Update.round, Update.state, Update.codec)


def traffic_in(numbers: Sequence[int]) -> Select[Any]:
    """What TrafficSums has of these rounds, from their rows."""
    return _traffic(Traffic, (Traffic.round, Traffic.kind)).where(among(Traffic.round, numbers))


def _traffic(rows: Any, groups: Sequence[Any]) -> Select[Any]:
    of_http = (_sum(getattr(rows, name)).label(name) for name in HTTP_COUNTERS)
    of_tcp = (_sum_of_all(getattr(rows, name)).label(name) for name in TCP_COUNTERS)
    return select(*groups, *of_http, *of_tcp).group_by(*groups)


def _with_unkept(session: Session, kept: type[UpdateSums | TrafficSums], read: Callable[..., Select[Any]]) -> Any:
    numbers = unkept(session)
    of_kept = select(*kept.__table__.columns).where(~among(kept.round, numbers))
    return union_all(of_kept, read(numbers)).subquery().c


def update_sums(session: Session, by_round: bool = False) -> Sequence[Any]:
    """Sums of updates in one state and of one codec, "" for none (and round), and their number.

    Columns: round (if `by_round`), state, codec, updates, length, received, requests, late; ordered by codec.
    """
    each = _with_unkept(session, UpdateSums, updates_in)
    groups = (*((each.round,) if by_round else ()), each.state, each.codec)
    names = ("updates", "length", "received", "requests", "late")
    sums = (_sum(each[name]).label(name) for name in names)
    return session.execute(select(*groups, *sums).group_by(*groups).order_by(each.codec)).all()


def traffic_sums(session: Session, by_round: bool = False) -> Sequence[Any]:
    """Sums of requests of one kind (and round), of HTTP_COUNTERS and TCP_COUNTERS, under their names.

    One of TCP_COUNTERS is None if it is not known of all.
    """
    each = _with_unkept(session, TrafficSums, traffic_in)
    return session.execute(_traffic(each, (*((each.round,) if by_round else ()), each.kind))).all()


def _sum(column: Any) -> Cast[int]:
    """The sum as a whole number: of 64-bit integers PostgreSQL makes a decimal one."""
    return cast(func.sum(column), WHOLE)


def _sum_of_all(column: Any) -> Case[Any]:
    return case((func.count(column) == func.count(), _sum(column)))


def phone_percentiles(session: Session, direction: Direction, numbers: Sequence[int]) -> dict[int, dict[str, int]]:
    """PERCENTILES, for each of these rounds, of the bytes that a phone sent, or was sent, headers included: the ones of
    OF_PHONES that there are.

    By nearest rank, so each is the bytes of one phone. Phones that named themselves and sent some of an update ("up"),
    or asked for a model or links ("down"); no entry for a round without one.
    """
    # Bodies of other requests than uploads belong to no phone: those that were refused unread.
    up_body = case((Traffic.kind.in_(("upload", *MASKED_KINDS)), Traffic.up_body_bytes), else_=0)
    up, down = Traffic.up_header_bytes + up_body, Traffic.down_header_bytes + Traffic.down_body_bytes
    asked = case((Traffic.kind.in_((*ASKED_KINDS, *ASKED_KINDS.values())), 1), else_=0)
    took_part = func.sum(up_body if direction == "up" else asked) > 0
    phones = (
        select(Traffic.round, cast(func.sum(up if direction == "up" else down), WHOLE).label("nbytes"))
        .where(among(Traffic.round, numbers), Traffic.phone != "")
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
    by_round: dict[int, dict[str, int]] = defaultdict(dict)
    for row in session.execute(select(ranked).where(or_(*wanted))):
        for percent, name in PERCENTILES.items():
            if row.rank == _nearest_rank(row.phones, percent):
                by_round[row.round][f"{direction}_{name}"] = row.nbytes
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
