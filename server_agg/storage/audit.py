"""The audit log: what administrators did, and which requests were refused.

An action is recorded in the transaction that performs it. Refusals are recorded at a limited rate and only the newest
are kept, so that refused requests cannot fill the disk.
"""

import logging
import threading

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
MAX_TEXT_CHARACTERS = 300  # of text from clients


class AuditEntry(Record, frozen=True):
    """One action: `at` in seconds since 1970, `outcome` done or refused. See tables.Audit."""

    id: Count
    at: float
    actor: str
    action: str
    subject: str
    outcome: str
    detail: str


def record(session: Session, at: float, actor: str, action: str, subject: str, detail: str = "") -> None:
    """Record in the transaction of `session` that `actor` did `action` to `subject`."""
    session.add(_row(at, actor, action, subject, "done", detail))
    facts = event("audit", actor=actor, action=action, subject=subject, outcome="done")
    log.info("%s: %s %s: done%s", actor, action, subject, f": {detail}" if detail else "", extra=facts)


class AuditLog:
    """The audit log of a ledger; thread-safe. `kept`: refusals to keep."""

    def __init__(self, ledger: Ledger, kept: int = MAX_REFUSALS):
        self._ledger = ledger
        self._kept = kept
        self._bucket = TokenBuckets(REFUSALS_PER_SECOND, REFUSALS_BURST, 1, ledger.clock)
        self._lock = threading.Lock()
        self._skipped = 0

    def record_done(self, actor: str, action: str, subject: str, detail: str = "") -> None:
        """Record an action that was performed in a transaction of its own. Raises StorageError."""
        with self._ledger.writing() as session:
            record(session, self._ledger.clock(), actor, action, subject, detail)

    def record_refusal(self, actor: str, action: str, subject: str, detail: str) -> None:
        """Record a refusal in the database and the log; above the rate limit it is only counted. Never raises."""
        with self._lock:
            if self._bucket.take("") > 0:
                self._skipped += 1
                return
            skipped, self._skipped = self._skipped, 0
        if skipped:
            detail = f"{detail} (and {skipped} earlier refusals over the rate limit)"
        row = _row(self._ledger.clock(), actor, action, subject, "refused", detail)
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
            log.error("cannot record the refusal: %s", error)

    def entries(self, limit: int = 100, before: int | None = None) -> list[AuditEntry]:
        """Return at most `limit` entries with an id below `before`, newest first. Raises StorageError."""
        wanted = select(Audit).order_by(Audit.id.desc()).limit(limit)
        if before is not None:
            wanted = wanted.where(Audit.id < before)
        with self._ledger.reading() as session:
            return [
                AuditEntry(row.id, row.at, row.actor, row.action, row.subject, row.outcome, row.detail)
                for row in session.scalars(wanted)
            ]

    def _prune(self, session: Session) -> None:
        refusals = session.scalar(select(func.count()).where(Audit.outcome == "refused")) or 0
        if refusals <= self._kept:
            return
        oldest = select(Audit.id).where(Audit.outcome == "refused").order_by(Audit.id).limit(refusals - self._kept)
        session.execute(delete(Audit).where(Audit.id.in_(oldest)))


def printable(text: str) -> str:
    """Text from a client as one short printable line, without line breaks or terminal sequences."""
    return one_line(text)[:MAX_TEXT_CHARACTERS]


def _row(at: float, actor: str, action: str, subject: str, outcome: str, detail: str) -> Audit:
    return Audit(
        at=at, actor=printable(actor), action=printable(action), subject=printable(subject), outcome=outcome,
        detail=printable(detail),
    )  # fmt: skip
