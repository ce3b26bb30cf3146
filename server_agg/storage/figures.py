"""What a report reads from all rows of a round: percentiles, firsts. Of closed rounds it is kept.

A figure is kept with the number of changes that its rows had had by then (the sums count them), and is read again once
there are more: so nobody who changes a row needs to know of it, and two readers cannot disturb each other.
"""

import contextlib
from collections.abc import Mapping, Sequence
from typing import get_args

from sqlalchemy import ColumnElement, func, select, union_all
from sqlalchemy.orm import Session, aliased

from phonograd.device_runtime.base.errors import StorageError
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.sums import PERCENTILES, Direction, phone_percentiles
from phonograd.server_agg.storage.tables import PUBLISHED, Round, RoundFigures, TrafficSums, Update, UpdateSums

AT_ONCE = 1000  # rounds in a query: databases limit its parameters


def of_closed_rounds(session: Session) -> tuple[dict[int, RoundFigures], list[RoundFigures]]:
    """By round, but for rounds without updates and traffic; and those of them that were read now: for `keep`."""
    changes = _changes(session, closed=True)
    kept = {row.round: row for row in session.scalars(select(RoundFigures)) if row.changes == changes.get(row.round)}
    fresh = _read(session, {number: changes[number] for number in changes.keys() - kept.keys()})
    return kept | {row.round: row for row in fresh}, fresh


def of_open_round(session: Session) -> dict[int, RoundFigures]:
    """By round; empty before its first request."""
    return {row.round: row for row in _read(session, _changes(session, closed=False))}


def keep(ledger: Ledger, fresh: Sequence[RoundFigures]) -> None:
    """Write down what `of_closed_rounds` has read, outside its session; nothing in a ledger that cannot be written."""
    with contextlib.suppress(StorageError):
        if fresh:
            with ledger.writing() as session:
                for row in fresh:
                    session.merge(row)


def _changes(session: Session, closed: bool) -> dict[int, int]:
    """How often the rows of each closed round have changed, or of the open one."""
    both = (select(kept.round, kept.changes) for kept in (UpdateSums, TrafficSums))
    each = union_all(*both).subquery()
    of_these = Round.closed_at.is_not(None) if closed else Round.closed_at.is_(None)
    total = select(each.c.round, func.sum(each.c.changes)).join(Round, Round.number == each.c.round)
    return {number: int(sum_) for number, sum_ in session.execute(total.where(of_these).group_by(each.c.round))}


def _read(session: Session, changes: Mapping[int, int]) -> list[RoundFigures]:
    numbers, found = sorted(changes), list[RoundFigures]()
    for start in range(0, len(numbers), AT_ONCE):
        some = numbers[start : start + AT_ONCE]
        percentiles = [(way, phone_percentiles(session, way, some)) for way in get_args(Direction)]
        first, unbounded = _first(session, some), _unbounded(session, some)
        for number in some:
            values = {
                f"{way}_{name}": of[number].get(percent)
                for way, of in percentiles
                for percent, name in PERCENTILES.items()
            }
            row = RoundFigures(
                round=number,
                changes=changes[number],
                first_at=first.get(number),
                unbounded=unbounded.get(number, 0),
                **values,
            )
            found.append(row)
    return found


def _first(session: Session, numbers: Sequence[int]) -> dict[int, float]:
    accepted = select(Update.round, func.min(Update.created_at).label("at")).where(
        Update.round.in_(numbers), Update.state == "accepted"
    )
    return {row.round: row.at for row in session.execute(accepted.group_by(Update.round))}


def _unbounded(session: Session, numbers: Sequence[int]) -> dict[int, int]:
    """Phones whose updates were published without noise in a round, and in none before: no such update ever changes."""
    before, its_round = aliased(Update), aliased(Round)
    earlier = (
        select(before.id)
        .join(its_round, its_round.number == before.round)
        .where(before.phone == Update.phone, before.round < Update.round, *_in_the_open(before, its_round))
    )
    first = (
        select(Update.round, func.count().label("phones"))
        .join(Round, Round.number == Update.round)
        .where(Update.round.in_(numbers), *_in_the_open(Update, Round), ~earlier.exists())
    )
    return {row.round: row.phones for row in session.execute(first.group_by(Update.round))}


def _in_the_open(update: type[Update], round_: type[Round]) -> Sequence[ColumnElement[bool]]:
    """An accepted update whose round was published without noise."""
    return update.state == "accepted", round_.ending.in_(PUBLISHED), round_.epsilon.is_(None)
