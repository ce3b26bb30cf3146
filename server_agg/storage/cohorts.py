"""The stage of a masked round, and its phones' messages. Every function takes a session of the ledger."""

import json
from collections.abc import Mapping
from typing import Any, get_args

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from phonograd.server_agg.storage.tables import Cohort, Message, MessageKind, StageName

Messages = dict[str, dict[str, Any]]  # by phone


def begin_stage(session: Session, number: int, stage: StageName, now: float, ended: StageName, through: int) -> Cohort:
    """A round's stage begins, as so many phones got through the one that has ended. Returns the row, to be changed."""
    row = session.get(Cohort, number) or Cohort(round=number, counts="{}")
    row.stage, row.since, row.counts = stage, now, json.dumps({**json.loads(row.counts), ended: through})
    session.add(row)
    return row


def noise_of_rounds(session: Session) -> list[float]:
    """Noise of all rounds whose phones were to add some, failed ones too: their sum may have been seen."""
    return list(session.scalars(select(Cohort.noise).where(Cohort.noise > 0)))


def add_message(session: Session, number: int, kind: MessageKind, phone: str, message: Mapping[str, Any]) -> None:
    """Add a phone's message."""
    session.add(Message(round=number, kind=kind, phone=phone, body=json.dumps(message, sort_keys=True)))


def messages_of(session: Session, number: int) -> dict[MessageKind, Messages]:
    """All messages of a round, by kind."""
    found: dict[MessageKind, Messages] = {kind: {} for kind in get_args(MessageKind)}
    for row in session.scalars(select(Message).where(Message.round == number).order_by(Message.phone)):
        found[row.kind][row.phone] = json.loads(row.body)
    return found


def has_messages(session: Session, number: int) -> bool:
    """Whether a round has any."""
    return session.scalar(select(Message.phone).where(Message.round == number).limit(1)) is not None


def delete_messages(session: Session) -> None:
    """Delete all of them: they are of a round that has ended."""
    session.execute(delete(Message))


def all_cohorts(session: Session) -> dict[int, Cohort]:
    """The masked rounds' stages, by round."""
    return {row.round: row for row in session.scalars(select(Cohort))}
