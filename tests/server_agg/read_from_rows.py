"""Sums as a ledger without kept ones would have them: read from all rows. What the kept ones are held to."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, get_args

import pytest
from sqlalchemy import Case, Cast, case, cast, func, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from phonograd.device_runtime.base.documents import document_of
from phonograd.server_agg.report.document import report_of
from phonograd.server_agg.storage import figures, sums
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.sums import Direction
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
    Update,
)


@contextmanager
def rows_read() -> Iterator[None]:
    """Make reports and metrics from rows in this block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sums, "update_sums", update_sums)
        patch.setattr(sums, "traffic_sums", traffic_sums)
        patch.setattr(figures, "of_rounds", figures_of_all)
        patch.setattr(figures, "unbounded_phones", lambda session: sum(phones_with_infinite_epsilon(session).values()))
        patch.setattr(figures, "refresh", lambda _: None)
        yield


def check_report(ledger: Ledger) -> dict[str, Any]:
    """The report, once it is the one that is made from rows."""
    ledger.flush()
    report = document_of(report_of(ledger))
    with rows_read():
        assert report == document_of(report_of(ledger))
    return report


def _sum(column: InstrumentedAttribute[int]) -> Cast[int]:
    return cast(func.sum(column), WHOLE)


def _sum_of_all(column: InstrumentedAttribute[Any]) -> Case[Any]:
    return case((func.count(column) == func.count(), _sum(column)))


def update_sums(session: Session, by_round: bool = False) -> Sequence[Any]:
    groups = (*((Update.round,) if by_round else ()), Update.state, Update.codec)
    sums = (
        func.count().label("updates"),
        _sum(Update.length).label("length"),
        _sum(Update.received_bytes).label("received"),
        _sum(Update.requests).label("requests"),
        func.count(Update.base_sha256).label("late"),
    )
    return session.execute(select(*groups, *sums).group_by(*groups).order_by(Update.codec)).all()


def traffic_sums(session: Session, by_round: bool = False) -> Sequence[Any]:
    groups = (*((Traffic.round,) if by_round else ()), Traffic.kind)
    of_http = (_sum(getattr(Traffic, name)).label(name) for name in HTTP_COUNTERS)
    of_tcp = (_sum_of_all(getattr(Traffic, name)).label(name) for name in TCP_COUNTERS)
    return session.execute(select(*groups, *of_http, *of_tcp).group_by(*groups)).all()


def figures_of_all(session: Session) -> dict[int, RoundFigures]:
    found: dict[int, dict[str, Any]] = defaultdict(lambda: {"unbounded": 0})
    for way in get_args(Direction):
        for number, values in phone_percentiles(session, way).items():
            found[number] |= {f"{way}_{sums.PERCENTILES[percent]}": nbytes for percent, nbytes in values.items()}
    for number, phones in phones_with_infinite_epsilon(session).items():
        found[number]["unbounded"] = phones
    accepted = select(Update.round, func.min(Update.created_at)).where(Update.state == "accepted")
    for number, first in session.execute(accepted.group_by(Update.round)):
        found[number]["first_at"] = first
    return defaultdict(RoundFigures) | {number: RoundFigures(**values) for number, values in found.items()}


def phone_percentiles(session: Session, direction: Direction) -> dict[int, dict[int, int]]:
    up_body = case((Traffic.kind.in_(("upload", *MASKED_KINDS)), Traffic.up_body_bytes), else_=0)
    up, down = Traffic.up_header_bytes + up_body, Traffic.down_header_bytes + Traffic.down_body_bytes
    asked = case((Traffic.kind.in_((*ASKED_KINDS, *ASKED_KINDS.values())), 1), else_=0)
    phones = (
        select(Traffic.round, cast(func.sum(up if direction == "up" else down), WHOLE).label("nbytes"))
        .where(Traffic.phone != "")
        .group_by(Traffic.round, Traffic.phone)
        .having(func.sum(up_body if direction == "up" else asked) > 0)
        .subquery()
    )
    ranked = select(
        phones,
        func.row_number().over(partition_by=phones.c.round, order_by=phones.c.nbytes).label("rank"),
        func.count().over(partition_by=phones.c.round).label("phones"),
    ).subquery()
    places = {percent: (ranked.c.phones * percent + 99) // 100 for percent in sums.PERCENTILES}
    by_round: dict[int, dict[int, int]] = defaultdict(dict)
    for row in session.execute(select(ranked).where(or_(*(ranked.c.rank == place for place in places.values())))):
        for percent in places:
            if row.rank == (row.phones * percent + 99) // 100:
                by_round[row.round][percent] = row.nbytes
    return by_round


def phones_with_infinite_epsilon(session: Session) -> dict[int, int]:
    first = (
        select(func.min(Update.round).label("round"))
        .join(Round, Round.number == Update.round)
        .where(Update.state == "accepted", Round.ending.in_(PUBLISHED), Round.epsilon.is_(None))
        .group_by(Update.phone)
        .subquery()
    )
    counts = session.execute(select(first.c.round, func.count().label("phones")).group_by(first.c.round))
    return {row.round: row.phones for row in counts}
