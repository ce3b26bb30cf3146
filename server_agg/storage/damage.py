"""What is wrong with a ledger's rows: looked for where a reader stumbles, as to look at all of them takes a while."""

import json
from collections.abc import Iterator
from typing import Any, get_args

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from phonograd.server_agg.aggregation.settings import StrategySettings
from phonograd.server_agg.settings.masked import MaskedSettings
from phonograd.server_agg.settings.rules import RoundRules
from phonograd.server_agg.storage.tables import Base, Ending, Model, Round, Traffic, TrafficKind, Update, UpdateState
from phonograd.server_agg.transfer.settings import TransferSettings

COLUMNS = [column for table in Base.metadata.sorted_tables for column in table.columns]
REFERENCES: list[tuple[Any, Any]] = [(one, key.column) for one in COLUMNS for key in one.foreign_keys]
REFERENCES.append((Model.parent_sha256, Model.sha256))
CHOICES: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (Update.state, get_args(UpdateState)),
    (Round.ending, get_args(Ending)),
    (Traffic.kind, get_args(TrafficKind)),
)
SETTINGS: tuple[tuple[Any, Any], ...] = (
    (Round.rules, RoundRules.from_json),
    (Round.strategy, StrategySettings.from_json),
    (Round.masked, MaskedSettings.from_json),
    (Round.transfer, lambda text: TransferSettings(**json.loads(text))),
)


def damage_in(session: Session) -> str | None:
    """What is wrong with a row; None if all rows fit."""
    return next(_damage(session), None)


def _damage(session: Session) -> Iterator[str]:
    for column, key in REFERENCES:
        wrong = select(column).where(column.is_not(None), column.not_in(select(key)))
        yield from (f"{column} is {value!r}, which {key} lacks" for value in session.scalars(wrong.limit(1)))
    for column, choices in CHOICES:
        wrong = select(column).where(column.not_in(choices))
        yield from (f"{column} is {value!r}" for value in session.scalars(wrong.limit(1)))
    if session.get_bind().dialect.name == "sqlite":  # others hold columns to their types
        for column in (one for one in COLUMNS if one.type.python_type in (int, float)):
            wrong = select(column).where(func.typeof(column).in_(("text", "blob")))
            yield from (f"{column} is {value!r}" for value in session.scalars(wrong.limit(1)))
    for column, parse in SETTINGS:
        for text in session.scalars(select(column).where(column.is_not(None)).distinct()):
            try:
                parse(text)
            except (ValueError, TypeError) as error:
                yield f"{column}: {error}"
