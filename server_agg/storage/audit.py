"""The audit log: what administrators did, and what was refused to whom.

What is done is written in the transaction that does it. Refusals are written at a bounded rate and a bounded number of
them is kept, so that nobody can fill the disk by being refused.
"""

import logging
import threading
import time
from collections.abc import Callable

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from phonograd.device_runtime.base.documents import Count, Record
from phonograd.device_runtime.base.errors import StorageError
from phonograd.server_agg.log_format import event
from phonograd.server_agg.rate_limits import TokenBuckets
from phonograd.server_agg.refusals import one_line
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.tables import Audit

log = logging.getLogger(__name__)

REFUSALS_PER_SECOND = 1.0
REFUSALS_BURST = 60
MAX_REFUSALS = 20_000
TEXT_CHARACTERS = 300  # of what others wrote


class AuditEntry(Record, frozen=True):
    """One thing done or refused; `at` in seconds since 1970, `outcome` done or refused. See tables.Audit."""

    id: Count
    at: float
    actor: str
    action: str
    subject: str
    outcome: str
    detail: str


def record(session: Session, at: float, actor: str, action: str, subject: str, detail: str = "") -> None:
    """Write down, in the transaction of `session`, that `actor` did `action` to `subject`."""
    session.add(_row(at, actor, action, subject, "done", detail))
    facts = event("audit", actor=actor, action=action, subject=subject, outcome="done")
    log.info("%s: %s %s: done%s", actor, action, subject, f": {detail}" if detail else "", extra=facts)


class AuditLog:
    """The audit log of a ledger; safe to use from several threads. `clock`: seconds since 1970."""

    def __init__(self, ledger: Ledger, clock: Callable[[], float] = time.time, kept: int = MAX_REFUSALS):
        self._ledger = ledger
        self._clock = clock
        self._kept = kept
        self._bucket = TokenBuckets(REFUSALS_PER_SECOND, REFUSALS_BURST, 1, clock)
        self._lock = threading.Lock()
        self._unwritten = 0

    def record_done(self, actor: str, action: str, subject: str, detail: str = "") -> None:
        """Write down what was done in a transaction of another's. Raises StorageError."""
        with self._ledger.writing() as session:
            record(session, self._clock(), actor, action, subject, detail)

    def record_refusal(self, actor: str, action: str, subject: str, detail: str) -> None:
        """Write down a refusal, in the database and the log; above the rate it is only counted. Never raises."""
        with self._lock:
            if self._bucket.take("") > 0:
                self._unwritten += 1
                return
            missed, self._unwritten = self._unwritten, 0
        if missed:
            detail = f"{detail} (and {missed} refusals before it that were too many to write down)"
        row = _row(self._clock(), actor, action, subject, "refused", detail)
        log.warning(
            "%s: %s %s: refused: %s", row.actor, row.action, row.subject, row.detail,
            extra=event("audit", actor=row.actor, action=row.action, subject=row.subject, outcome=row.outcome),
        )  # fmt: skip
        try:
            with self._ledger.writing() as session:
                session.add(row)
                session.flush()
                self._prune(session)
        except StorageError as error:
            log.error("the refusal could not be written down: %s", error)

    def entries(self, limit: int = 100, before: int | None = None) -> list[AuditEntry]:
        """The newest entries first, at most `limit` of those with an id below `before`. Raises StorageError."""
        wanted = select(Audit).order_by(Audit.id.desc()).limit(limit)
        if before is not None:
            wanted = wanted.where(Audit.id < before)
        with self._ledger.reading() as session:
            return [
                AuditEntry(row.id, row.at, row.actor, row.action, row.subject, row.outcome, row.detail)
                for row in session.scalars(wanted)
            ]

    def _prune(self, session: Session) -> None:
        """Drop the oldest refusals above the number kept."""
        refusals = session.scalar(select(func.count()).where(Audit.outcome == "refused")) or 0
        if refusals <= self._kept:
            return
        oldest = select(Audit.id).where(Audit.outcome == "refused").order_by(Audit.id).limit(refusals - self._kept)
        session.execute(delete(Audit).where(Audit.id.in_(oldest)))


def printable(text: str) -> str:
    """Text that others wrote, as one short printable line: no forged log lines, no terminal sequences."""
    return one_line(text)[:TEXT_CHARACTERS]


def _row(at: float, actor: str, action: str, subject: str, outcome: str, detail: str) -> Audit:
    return Audit(
        at=at, actor=printable(actor), action=printable(action), subject=printable(subject), outcome=outcome,
        detail=printable(detail),
    )  # fmt: skip
