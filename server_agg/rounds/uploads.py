"""Uploads in progress: their rows in the ledger and their bytes beside it, so that they survive a restart."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import bindparam, insert, update
from sqlalchemy.orm import Session

from phonograd.server_agg.refusals import LateUpdateError, RefusalError, UploadEndedError, one_line
from phonograd.server_agg.storage import queries
from phonograd.server_agg.storage.ledger import Ledger, WireBytes, add_traffic, count_request
from phonograd.server_agg.storage.state_folder import StateFolder
from phonograd.server_agg.storage.tables import UPDATES, UpdateState
from phonograd.server_agg.storage.upload_bytes import upload_bytes

# No request is at an upload any more that did not go on for this long: its connection broke off, or its server was
# killed.
ABANDONED_SECONDS = 120.0
MOST_REFUSALS = 20
_ADDING, _ENDING = insert(UPDATES), update(UPDATES).where(UPDATES.c.id == bindparam("its"))
OF_ROW = ("id", "round", "phone", "state", "length", "sha256", "status", "reason")  # of an UploadRecord


@dataclass(frozen=True)
class UploadMetadata:
    """What a phone declares about an update before it sends it; optional values are checked early.

    phone: its name; length: bytes of the update; sha256: their hex hash; base_sha256, round: the base model and its
    round.
    """

    phone: str
    length: int
    sha256: str | None = None
    base_sha256: str | None = None
    round: int | None = None


@dataclass(frozen=True)
class UploadRecord:
    """An upload with its progress: `offset` of `length` bytes received. Times in seconds since 1970."""

    id: str
    round: int
    phone: str
    state: UpdateState
    length: int
    offset: int
    sha256: str | None
    touched_at: float
    expires_at: float
    status: int | None
    reason: str | None

    @property
    def complete(self) -> bool:
        """Whether all bytes were received."""
        return self.offset == self.length


class UploadStore:
    """Stores uploads from their creation until they are ingested or ended; thread-safe. bytes: what came of them."""

    def __init__(self, ledger: Ledger, folder: StateFolder, expire_seconds: float, announce_seconds: float):
        self._ledger = ledger
        self._folder = folder
        self._expire_seconds = expire_seconds
        self._announce_seconds = min(announce_seconds, expire_seconds)
        self.bytes = upload_bytes(folder, ledger)

    def add(self, session: Session, metadata: UploadMetadata, number: int) -> UploadRecord:
        """Add a row for a new upload to round `number`, within the caller's transaction."""
        identifier, now = secrets.token_hex(16), self._ledger.clock()
        row: dict[str, Any] = {
            "id": identifier,
            "round": number,
            "phone": metadata.phone,
            "state": "receiving",
            "length": metadata.length,
            "sha256": metadata.sha256,
            "created_at": now,
        }
        session.execute(_ADDING, {**row, "received_bytes": 0, "requests": 0})
        del row["created_at"]
        expires = now + self._announce_seconds
        return UploadRecord(**row, offset=0, touched_at=now, expires_at=expires, status=None, reason=None)

    def find(self, identifier: str) -> UploadRecord | None:
        """An upload by its id."""
        with self._ledger.reading() as session:
            row = queries.update_row(session, identifier)
            return None if row is None else self.record(session, row)

    def record(self, session: Session, row: Any) -> UploadRecord:
        """The upload of a row of `queries`, with its progress."""
        return self._records(session, [row])[0]

    def _records(self, session: Session, rows: Sequence[Any]) -> list[UploadRecord]:
        receiving = [row for row in rows if row.state == "receiving"]
        stored = self.bytes.stored_bytes(session, receiving) if receiving else {}
        return [self._record(row, *stored.get(row.id, (0, row.created_at))) for row in rows]

    def _record(self, row: Any, offset: int, touched: float) -> UploadRecord:
        if row.state in ("accepted", "repeated"):
            offset = row.length
        expires = touched + (self._expire_seconds if offset else self._announce_seconds)
        of_row = {name: getattr(row, name) for name in OF_ROW}
        return UploadRecord(offset=offset, touched_at=touched, expires_at=expires, **of_row)

    def unfinished_uploads(self) -> list[UploadRecord]:
        """All uploads in progress, including complete ones that are not ingested yet."""
        with self._ledger.reading() as session:
            return self._records(session, queries.unfinished_updates(session))

    def count_received(self, identifier: str, nbytes: int) -> None:
        """Count a request and its body bytes for an upload, which may have ended meanwhile."""
        with self._ledger.writing() as session:
            row = queries.update_row(session, identifier)
            count_request(session, row, nbytes)
            ended = row.state != "receiving"
        if ended:
            self.bytes.delete(identifier)

    def abort(self, identifier: str, state: UpdateState, reason: str, status: int | None, nbytes: int = 0) -> None:
        """End an upload without accepting it: delete its bytes, record the reason. `nbytes`: of a last request."""
        with self._ledger.writing() as session:
            row = queries.update_row(session, identifier)
            if nbytes:
                count_request(session, row, nbytes)
            if row.state == "receiving":
                self.end(session, identifier, state, reason, status)
        self.bytes.delete(identifier)

    def refuse(self, identifier: str, error: RefusalError, nbytes: int) -> None:
        """End an upload whose update is refused. `nbytes`: of its last request."""
        self.abort(identifier, _state_after(error), one_line(error), error.status, nbytes)

    def record_refusal(self, metadata: UploadMetadata, number: int, error: RefusalError) -> None:
        """Record that an update was refused before it was sent: once for each, and no more than MOST_REFUSALS of a
        phone in a round, whatever it announces.
        """
        with self._ledger.reading() as session:
            known = queries.refused_unsent(session, number, metadata.phone, MOST_REFUSALS)
        if metadata.sha256 in known or len(known) == MOST_REFUSALS:
            return
        with self._ledger.writing() as session:
            identifier = self.add(session, metadata, number).id
            self.end(session, identifier, _state_after(error), one_line(error), error.status)

    def end(
        self, session: Session, identifier: str, state: UpdateState, reason: str, status: int | None, **also: Any
    ) -> None:
        """Mark a row as ended, within the caller's transaction; the caller deletes its file. also: its other columns
        that change.
        """
        ended = {"state": state, "reason": reason, "status": status, "settled_at": self._ledger.clock()}
        session.execute(_ENDING, {"its": identifier, **ended, **also})

    def accept(self, session: Session, row: Any, number: int, nbytes: int, **found: Any) -> None:
        """Mark an upload as accepted in round `number`, within the caller's transaction. found: columns of its row;
        nbytes: of its last request.
        """
        # Counting an earlier request may have failed although its bytes are on disk.
        received = max(row.received_bytes + nbytes, row.length)
        if nbytes:  # otherwise all bytes came before a restart and were counted
            add_traffic(session, row.round, row.phone, "upload", WireBytes(up_body=nbytes, requests=0))
        move_traffic(session, row, received, number)
        counted = {"received_bytes": received, "requests": row.requests + bool(nbytes), "round": number}
        self.end(session, row.id, "accepted", "", 201, **counted, **found)

    def repeat(self, identifier: str, earlier: Any, codec: str, nbytes: int) -> None:
        """Mark an upload as one of an `earlier` update that was accepted. `nbytes`: of its last request."""
        with self._ledger.writing() as session:
            repeated = expect_receiving(session, identifier)
            if nbytes:
                count_request(session, repeated, nbytes)
            move_traffic(session, repeated, repeated.received_bytes + nbytes, earlier.round)
            of_earlier = {"round": earlier.round, "sha256": earlier.sha256, "codec": codec}
            self.end(session, identifier, "repeated", "sent before", 201, **of_earlier)

    def expire(self) -> list[UploadRecord]:
        """End uploads that were not resumed in time. Returns them."""
        now = self._ledger.clock()
        old = [upload for upload in self.unfinished_uploads() if upload.expires_at < now and not upload.complete]
        for upload in old:
            self.abort(upload.id, "expired", f"{upload.offset} of {upload.length} bytes received in time", 410)
        return old

    def abandoned_uploads(self) -> list[UploadRecord]:
        """Complete uploads that nobody has ingested for a while: phones may not know that a last request broke off."""
        before = self._ledger.clock() - ABANDONED_SECONDS
        return [upload for upload in self.unfinished_uploads() if upload.complete and upload.touched_at < before]

    def recover(self) -> list[UploadRecord]:
        """Count, at the start, the last bytes, delete unknown files.

        Returns the complete uploads, which are to be ingested. Those of other servers are left to them.
        """
        if self._ledger.shared:
            self._folder.delete_uploads_except(())
            return []
        self._count_uncounted()
        unfinished = self.unfinished_uploads()
        self._folder.delete_uploads_except({upload.id for upload in unfinished})
        return [upload for upload in unfinished if upload.complete]

    def _count_uncounted(self) -> None:
        """Count bytes on disk that a crash left uncounted."""
        with self._ledger.writing() as session:
            rows = queries.unfinished_updates(session)
            for row, upload in zip(rows, self._records(session, rows), strict=True):
                if (missing := upload.offset - row.received_bytes) > 0:
                    count_request(session, row, missing)


def _state_after(error: RefusalError) -> UpdateState:
    return "late" if isinstance(error, LateUpdateError) else "rejected"


def expect_receiving(session: Session, identifier: str) -> Any:
    """The columns of an upload in progress. Raises UploadEndedError if it has ended."""
    row = queries.update_row(session, identifier)
    if row.state != "receiving":
        raise upload_ended_error(row)
    return row


def upload_ended_error(row: Any) -> UploadEndedError:
    """The error for an upload that has ended, with its state and reason."""
    return UploadEndedError(f"the upload is {row.state}: {row.reason}; start a new one")


def move_traffic(session: Session, row: Any, received: int, number: int) -> None:
    """Move the bytes of an update to another round than its upload was created in. received: all that the ledger has
    of it by the end of the transaction.
    """
    if row.round != number:
        add_traffic(session, row.round, row.phone, "upload", WireBytes(up_body=-received, requests=0))
        add_traffic(session, number, row.phone, "upload", WireBytes(up_body=received, requests=0))


def redact_path(error: Exception, path: Path) -> str:
    """An error's message for a phone, without the server's file path."""
    return str(error).replace(str(path), "the update")
