"""Creating an upload: a place in the round and disk space for it, or the earlier upload of the same bytes."""

from sqlalchemy.orm import Session

from phonograd.server_agg.rounds import admission
from phonograd.server_agg.rounds.current_round import LiveRound
from phonograd.server_agg.rounds.uploads import UploadMetadata, UploadRecord, UploadStore
from phonograd.server_agg.storage import queries
from phonograd.server_agg.storage.tables import Update


def upload_for(current: LiveRound, uploads: UploadStore, metadata: UploadMetadata) -> UploadRecord:
    """A new upload, or this phone's earlier one of the same bytes. Raises what `Coordinator.create_upload` raises."""
    model_bytes = current.open_round.model_bytes
    with current.ledger.writing() as session:
        state = current.admission_state(session)
        if known := _known(session, metadata):
            return uploads.record(session, known)
        admission.check_duplicate(session, state, metadata.phone)
        if metadata.base_sha256 is not None:
            admission.check_base(session, state, metadata.base_sha256, metadata.round)
        admission.check_phone(session, state, metadata.phone)
        replaced = _end_earlier(session, uploads, metadata)
        # Space for the uploads in progress, this one, and what the round writes: its model, and at most as much again
        # of a lossless link, or a draft and a residual.
        to_come = queries.pending_bytes(session)
        files = 2 if state.rules.publish == "rows-f32" else 3
        current.folder.check_space(to_come + metadata.length + files * model_bytes)
        record = uploads.record(session, uploads.add(session, metadata, state.number))
    for identifier in replaced:
        uploads.bytes.delete(identifier)
    return record


def _known(session: Session, metadata: UploadMetadata) -> Update | None:
    """This phone's earlier upload of the same bytes."""
    for row in queries.updates_of_phone(session, metadata.phone, "receiving", "accepted"):
        same = metadata.sha256 is not None and row.sha256 == metadata.sha256 and row.length == metadata.length
        if same:
            return row
    return None


def _end_earlier(session: Session, uploads: UploadStore, metadata: UploadMetadata) -> list[str]:
    """End the uploads that this one replaces. Returns their ids; the caller deletes their files."""
    rows = list(queries.updates_of_phone(session, metadata.phone, "receiving"))
    for row in rows:
        uploads.end(row, "terminated", "the phone started another upload", 410)
    return [row.id for row in rows]
