"""The stage of a masked round, and its phones' messages. Every function takes a session of the ledger."""

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from phonograd.server_agg.storage.tables import Cohort, Message, MessageKind, StageName

Messages = dict[str, dict[str, Any]]  # by phone


def stage_of(session: Session, number: int) -> StageName | None:
    """The stage of a round; None before its first message."""
    row = session.get(Cohort, number)
    return None if row is None else row.stage


def since_of(session: Session, number: int) -> float:
    """Since when a round has been in its stage, in seconds since 1970."""
    return session.get_one(Cohort, number).since


def set_stage(session: Session, number: int, stage: StageName, now: float, ended: Mapping[str, int]) -> None:
    """A round's stage begins. ended: how many phones got through those that have ended, by their names."""
    row = session.get(Cohort, number) or Cohort(round=number)
    row.stage, row.since, row.counts = stage, now, json.dumps(ended)
    session.add(row)


def set_noise(session: Session, number: int, noise: float) -> None:
    """The multiplier of the noise that a round's phones added together."""
    session.get_one(Cohort, number).noise = noise


def noise_of_rounds(session: Session) -> list[float]:
    """That of all rounds whose phones were to add some, failed ones too: their sum may have been seen."""
    return list(session.scalars(select(Cohort.noise).where(Cohort.noise > 0)))


def add_message(session: Session, number: int, kind: MessageKind, phone: str, message: Mapping[str, Any]) -> None:
    """Add a phone's message."""
    session.add(Message(round=number, kind=kind, phone=phone, body=json.dumps(message, sort_keys=True)))


def messages_of(session: Session, number: int, kind: MessageKind) -> Messages:
    """All messages of a kind."""
    wanted = select(Message).where(Message.round == number, Message.kind == kind).order_by(Message.phone)
    return {row.phone: json.loads(row.body) for row in session.scalars(wanted)}


def has_messages(session: Session, number: int) -> bool:
    """Whether a round has any."""
    return session.scalar(select(Message.phone).where(Message.round == number).limit(1)) is not None


def delete_messages(session: Session) -> None:
    """Delete all of them: they are of a round that has ended."""
    session.execute(delete(Message))


def all_cohorts(session: Session) -> dict[int, Cohort]:
    """The masked rounds' stages, by round."""
    return {row.round: row for row in session.scalars(select(Cohort))}


def counts_of(session: Session, number: int) -> dict[str, int]:
    """How many phones got through the stages of a round that have ended."""
    row = session.get(Cohort, number)
    return {} if row is None else dict(json.loads(row.counts))
