"""Queries on the ledger. Every function takes a session of `Ledger.reading` or `Ledger.writing`."""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Select, bindparam, delete, func, select
from sqlalchemy.orm import Session

from phonograd.server_agg.storage.tables import (
    PUBLISHED,
    UPDATES,
    Chunk,
    Model,
    Process,
    Round,
    Selected,
    Update,
    UpdateState,
)

_OPEN = select(Round.number).where(Round.closed_at.is_(None))
_UNSENT = Update.state.in_(("rejected", "late")) & (Update.requests == 0)
# Statements of each upload are made once, and read columns of what is flushed: loading objects takes longer.
_NEWEST_ROUND = select(Round).order_by(Round.number.desc()).limit(1)
_ROW = select(UPDATES).where(UPDATES.c.id == bindparam("identifier"))
_PENDING = select(func.sum(UPDATES.c.length - UPDATES.c.received_bytes)).where(
    UPDATES.c.state == "receiving", UPDATES.c.received_bytes < UPDATES.c.length
)
_NEEDED = ((Update.state == "accepted") & Update.round.in_(_OPEN)) | (Update.state == "kept")


def open_round(session: Session) -> Round | None:
    """The open round, which is the newest; None in a new ledger."""
    newest = session.scalars(_NEWEST_ROUND).one_or_none()
    return newest if newest is not None and newest.closed_at is None else None


def all_rounds(session: Session) -> list[Round]:
    """All rounds, in order."""
    return list(session.scalars(select(Round).order_by(Round.number)))


def all_models(session: Session) -> list[Model]:
    """All models, oldest first."""
    return list(session.scalars(select(Model).order_by(Model.round, Model.created_at)))


def accepted_updates(session: Session, number: int) -> list[Update]:
    """The accepted updates of a round by hash and phone, an order independent of their arrival."""
    wanted = select(Update).where(Update.round == number, Update.state == "accepted")
    return list(session.scalars(wanted.order_by(Update.sha256, Update.phone)))


def processes(session: Session, ids: Iterable[str]) -> dict[str, Process]:
    """The processes with these ids, as far as they are known."""
    return {found.id: found for found in session.scalars(select(Process).where(Process.id.in_(ids)))}


def delete_processes(session: Session, before: float) -> None:
    """Delete the processes that were last seen before then."""
    session.execute(delete(Process).where(Process.seen_at < before))


def kept_updates(session: Session, number: int) -> list[Update]:
    """The updates kept from a failed round."""
    return list(session.scalars(select(Update).where(Update.round == number, Update.state == "kept")))


def needed_update_hashes(session: Session) -> set[str]:
    """Hashes of the updates whose files are needed: those of the open round, and those kept from failed rounds."""
    return {str(sha256) for sha256 in session.scalars(select(Update.sha256).where(_NEEDED))}


def late_bases(session: Session, number: int) -> set[str]:
    """The models that the late updates of a round are made from."""
    return {str(update.base_sha256) for update in accepted_updates(session, number) if update.base_sha256}


def update_ids_in_use(session: Session) -> tuple[set[str], set[str]]:
    """Ids of the uploads in progress, and of the updates that `needed_update_hashes` has."""
    receiving = select(Update.id).where(Update.state == "receiving")
    return set(session.scalars(receiving)), set(session.scalars(select(Update.id).where(_NEEDED)))


def delete_ended_chunks(session: Session) -> None:
    """Delete the chunks of uploads that have ended: a server was killed before it did."""
    ended = select(Update.id).where(Update.state != "receiving")
    session.execute(delete(Chunk).where(Chunk.upload.in_(ended)))


def count_updates(session: Session, number: int, *states: UpdateState) -> int:
    """The number of a round's updates in one of `states`."""
    return int(session.execute(_count(states), {"number": number}).scalar_one())


@cache
def _count(states: tuple[UpdateState, ...]) -> Select[Any]:
    counted = select(func.count()).select_from(UPDATES)
    return counted.where(UPDATES.c.round == bindparam("number"), UPDATES.c.state.in_(states))


def count_phones(session: Session, number: int, *states: UpdateState) -> int:
    """The number of phones with an update in one of `states` in a round."""
    wanted = select(func.count(Update.phone.distinct())).where(Update.round == number, Update.state.in_(states))
    return session.scalar(wanted) or 0


def has_update(session: Session, number: int, phone: str, *states: UpdateState) -> bool:
    """Whether a phone has an update in one of `states` in a round."""
    return session.execute(_has(states), {"number": number, "phone": phone}).first() is not None


@cache
def _has(states: tuple[UpdateState, ...]) -> Select[Any]:
    columns = UPDATES.c
    of_round = columns.round == bindparam("number"), columns.phone == bindparam("phone")
    return select(columns.id).where(*of_round, columns.state.in_(states)).limit(1)


def pending_bytes(session: Session) -> int:
    """Bytes that the uploads in progress have yet to send. Those of the last second may not be counted yet."""
    return int(session.execute(_PENDING).scalar_one() or 0)


def refused_unsent(session: Session, number: int, phone: str, most: int) -> list[str | None]:
    """The announced hashes of up to `most` updates of a phone that a round refused before their first byte."""
    wanted = select(Update.sha256).where(Update.round == number, _UNSENT, Update.phone == phone)
    return list(session.scalars(wanted.limit(most)))


def delete_refused_unsent(session: Session, number: int) -> None:
    """Delete the rows of updates that a round refused before their first byte."""
    session.execute(delete(Update).where(Update.round == number, _UNSENT))


def update_row(session: Session, identifier: str) -> Any:
    """The columns of an update, which is not loaded; None without one."""
    return session.execute(_ROW, {"identifier": identifier}).one_or_none()


def updates_of_phone(session: Session, phone: str, *states: UpdateState) -> Sequence[Any]:
    """The columns of a phone's updates in one of `states`, newest first."""
    return session.execute(_of_phone(states), {"phone": phone}).all()


@cache
def _of_phone(states: tuple[UpdateState, ...]) -> Select[Any]:
    wanted = select(UPDATES).where(UPDATES.c.phone == bindparam("phone"), UPDATES.c.state.in_(states))
    return wanted.order_by(UPDATES.c.created_at.desc())


def unfinished_updates(session: Session) -> list[Update]:
    """Uploads in progress, oldest first."""
    return list(session.scalars(select(Update).where(Update.state == "receiving").order_by(Update.created_at)))


def is_selected(session: Session, number: int, phone: str) -> bool:
    """Whether a phone was sampled for a round."""
    return session.get(Selected, (number, phone)) is not None


def last_run(session: Session) -> str | None:
    """The run of dp-ftrl; None without one."""
    wanted = select(Round.run).where(Round.run.is_not(None)).order_by(Round.number.desc())
    return session.scalar(wanted.limit(1))


def steps_released(session: Session) -> int:
    """How many rounds of the run have published a model."""
    return session.scalar(select(func.max(Round.run_step)).where(Round.ending.in_(PUBLISHED))) or 0


def steps_of_phone(session: Session, phone: str) -> list[int]:
    """The steps of the run whose published models have an update of a phone, in order."""
    wanted = (
        select(Round.run_step)
        .join(Update, Update.round == Round.number)
        .where(Update.phone == phone, Update.state == "accepted", Round.ending.in_(PUBLISHED))
        .where(Round.run_step.is_not(None))
    )
    return sorted(int(step) for step in session.scalars(wanted) if step is not None)


def rounds_from_model(session: Session, sha256: str, number: int | None = None) -> list[Round]:
    """The rounds with this base model, in order; `number`: that one alone."""
    wanted = select(Round).where(Round.base_sha256 == sha256).order_by(Round.number)
    return list(session.scalars(wanted if number is None else wanted.where(Round.number == number)))


def models_from(session: Session, row: Round) -> int:
    """How many rounds made a model of the base of round `row` before it."""
    made = Round.result_sha256 != Round.base_sha256, Round.base_sha256 == row.base_sha256
    before = Round.number < row.number, Round.rolled_back_at.is_(None)
    return session.scalar(select(func.count()).select_from(Round).where(*made, *before)) or 0


def bases_after(session: Session, number: int) -> set[str]:
    """The models that phones had in the rounds after that one."""
    return set(session.scalars(select(Round.base_sha256).where(Round.number > number)))


def rolled_back_rounds(session: Session) -> set[int]:
    """The numbers of the rounds that were rolled back."""
    return set(session.scalars(select(Round.number).where(Round.rolled_back_at.is_not(None))))
