"""Announcing an update: a place in the round and room on the disk for it, or what is here of it already."""

from sqlalchemy.orm import Session

from phonograd.server_agg.refusals import RefusalError
from phonograd.server_agg.rounds import admission
from phonograd.server_agg.rounds.current import CurrentRound
from phonograd.server_agg.rounds.uploads import Announcement, UploadBook, UploadRecord
from phonograd.server_agg.storage import queries
from phonograd.server_agg.storage.tables import Update


def announce(current: CurrentRound, uploads: UploadBook, announced: Announcement) -> UploadRecord:
    """Make room for an update, see `Coordinator.announce`; a refusal is written down."""
    try:
        return _upload_for(current, uploads, announced)
    except RefusalError as error:
        uploads.turned_away(announced, current.open_round.round, error)
        raise


def _upload_for(current: CurrentRound, uploads: UploadBook, announced: Announcement) -> UploadRecord:
    standing, model_bytes = current.standing, current.open_round.model_bytes
    with current.ledger.writing() as session:
        if announced.resumable and (known := _known(session, announced)):
            return uploads.record(known)
        # What comes in one request is received in any case: its answer may be the receipt of an earlier one.
        if announced.resumable:
            admission.check_first(session, standing, announced.phone)
            if announced.base_sha256 is not None:
                admission.check_base(session, standing, announced.base_sha256, announced.round)
        admission.check_phone(session, standing, announced.phone)
        given_up = _give_up_earlier(session, uploads, announced)
        # The updates on their way, this one, and the model that the last of them will complete.
        to_come = uploads.bytes_to_come(session)
        current.folder.check_space(to_come + announced.length + model_bytes)
        record = uploads.record(uploads.add(session, announced, standing.number))
    for identifier in given_up:
        current.folder.upload(identifier).unlink(missing_ok=True)
    return record


def _known(session: Session, announced: Announcement) -> Update | None:
    """What this phone announced or sent before, with the same bytes."""
    for row in queries.updates_of_phone(session, announced.phone, "receiving", "accepted"):
        same = announced.sha256 is not None and row.sha256 == announced.sha256 and row.length == announced.length
        if same and (row.resumable or row.state == "accepted"):
            return row
    return None


def _give_up_earlier(session: Session, uploads: UploadBook, announced: Announcement) -> list[str]:
    """End the uploads that a resumable one replaces; their ids, whose files are still to be deleted."""
    if not announced.resumable:
        return []
    rows = [row for row in queries.updates_of_phone(session, announced.phone, "receiving") if row.resumable]
    for row in rows:
        uploads.end(row, "terminated", "the phone announced another update", 410)
    return [row.id for row in rows]
