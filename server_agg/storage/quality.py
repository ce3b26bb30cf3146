"""The quality that evaluators measured of models, in the ledger."""

from collections import defaultdict

from sqlalchemy import select
from sqlalchemy.orm import Session

from phonograd.server_agg.storage.audit import record
from phonograd.server_agg.storage.databases import upsert
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.tables import Model, Quality


def report_quality(ledger: Ledger, sha256: str, metric: str, value: float, actor: str) -> float | None:
    """Write a figure of model `sha256` down, in place of an earlier one of the same metric; `actor`: for the audit log.

    When, in seconds since 1970; None if the ledger has no such model. Raises StorageError.
    """
    with ledger.writing() as session:
        if session.get(Model, sha256) is None:
            return None
        now = ledger.clock()
        upsert(session, Quality, {"sha256": sha256, "metric": metric}, {"value": value, "reported_at": now})
        record(session, now, actor, "quality", sha256, f"{metric}: {value:g}")
    return now


def all_quality(session: Session) -> dict[str, dict[str, float]]:
    """The value of each metric, by model; empty for models without one."""
    quality: dict[str, dict[str, float]] = defaultdict(dict)
    for row in session.scalars(select(Quality).order_by(Quality.metric)):
        quality[row.sha256][row.metric] = row.value
    return quality
