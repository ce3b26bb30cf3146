"""What reports and metrics read from all rows of a round, once: of closed rounds it is kept until a row changes.

Once a closed round has its row in RoundFigures, the database counts the changes of its updates and traffic (`changes`).
What is read is kept with the count as it was then: so it shows when it is old, whoever wrote or read meanwhile.
"""

import contextlib
from collections.abc import Sequence
from typing import Any, get_args

from sqlalchemy import ColumnElement, delete, func, insert, select, update
from sqlalchemy.orm import Session, aliased

from phonograd.device_runtime.base.errors import StorageError
from phonograd.server_agg.storage import sums
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.sums import among
from phonograd.server_agg.storage.tables import PUBLISHED, Round, RoundFigures, TrafficSums, Update, UpdateSums

AT_ONCE = 100  # rounds in a transaction


def refresh(ledger: Ledger) -> None:
    """Read the closed rounds whose rows have changed, or were never read, and keep their sums; outside a session.

    It only makes reading faster: what is not kept is read from its rows, as in a ledger that cannot be written.
    """
    with contextlib.suppress(StorageError):
        with ledger.reading() as session:
            numbers = sums.unkept(session, closed=True)
        for start in range(0, len(numbers), AT_ONCE):
            _keep(ledger, numbers[start : start + AT_ONCE])


def of_rounds(session: Session) -> dict[int, RoundFigures]:
    """Figures of each round: those that are kept and those that are read now."""
    numbers = sums.unkept(session)
    kept = session.scalars(select(RoundFigures).where(~among(RoundFigures.round, numbers)))
    return {row.round: row for row in kept} | {one["round"]: RoundFigures(**one) for one in _read(session, numbers)}


def unbounded_phones(session: Session) -> int:
    """How many phones' epsilon is infinite: their updates were published without noise."""
    numbers = sums.unkept(session)
    kept = session.scalar(select(func.sum(RoundFigures.unbounded)).where(~among(RoundFigures.round, numbers)))
    return int(kept or 0) + sum(_count_unbounded(session, numbers).values())


def _keep(ledger: Ledger, numbers: Sequence[int]) -> None:
    with ledger.writing() as session:
        for number in numbers:
            if session.get(RoundFigures, number) is None:
                session.add(RoundFigures(round=number, changes=0))
    with ledger.reading() as session:
        figures = _read(session, numbers)
        updates, traffic = (session.execute(read(numbers)).all() for read in (sums.updates_in, sums.traffic_in))
    with ledger.writing() as session:
        for table, rows in ((UpdateSums, updates), (TrafficSums, traffic)):
            session.execute(delete(table).where(among(table.round, numbers)))
            if rows:
                session.execute(insert(table), [row._asdict() for row in rows])
        session.execute(update(RoundFigures), figures)


def _read(session: Session, numbers: Sequence[int]) -> list[dict[str, Any]]:
    changes = select(RoundFigures.round, RoundFigures.changes).where(among(RoundFigures.round, numbers))
    as_of = {row.round: row.changes for row in session.execute(changes)}
    first, unbounded = _first(session, numbers), _count_unbounded(session, numbers)
    up, down = (sums.phone_percentiles(session, direction, numbers) for direction in get_args(sums.Direction))

    def of_round(number: int) -> dict[str, Any]:
        found = {"round": number, "as_of": as_of.get(number), "first_at": first.get(number)}
        return {
            **found,
            "unbounded": unbounded.get(number, 0),
            **dict.fromkeys(sums.OF_PHONES),
            **up[number],
            **down[number],
        }

    return [of_round(number) for number in numbers]


def _first(session: Session, numbers: Sequence[int]) -> dict[int, float]:
    accepted = select(Update.round, func.min(Update.created_at).label("at")).where(Update.state == "accepted")
    wanted = accepted.where(among(Update.round, numbers)).group_by(Update.round)
    return {row.round: row.at for row in session.execute(wanted)}


def _count_unbounded(session: Session, numbers: Sequence[int]) -> dict[int, int]:
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
        .where(among(Update.round, numbers), *_in_the_open(Update, Round), ~earlier.exists())
    )
    return {row.round: row.phones for row in session.execute(first.group_by(Update.round))}


def _in_the_open(update: type[Update], round_: type[Round]) -> Sequence[ColumnElement[bool]]:
    return update.state == "accepted", round_.ending.in_(PUBLISHED), round_.epsilon.is_(None)
