"""The coordinator's log events: one function each, for a text line and its fields."""

import logging

from phonograd.device_runtime.base.errors import PhonogradError
from phonograd.server_agg.log_format import event
from phonograd.server_agg.rounds.uploads import UploadRecord
from phonograd.server_agg.storage.tables import Ending, Update

log = logging.getLogger(__name__)


def update_accepted(row: Update, number: int, taken: int, needed: int) -> None:
    """Round `number` accepted an update, the `taken`-th of `needed`."""
    facts = event("update_accepted", round=number, phone=row.phone, bytes=row.length, accepted=taken, needed=needed)
    log.info("round %d: %s accepted, %d of %d", number, row.phone, taken, needed, extra=facts)


def update_repeated(row: Update, number: int, nbytes: int) -> None:
    """A phone sent an accepted update again."""
    facts = event("update_repeated", round=number, phone=row.phone, bytes=nbytes)
    log.info("round %d: %s sent the same update again; not counted twice", number, row.phone, extra=facts)


def upload_expired(upload: UploadRecord) -> None:
    """An upload expired."""
    facts = event("upload_expired", round=upload.round, phone=upload.phone, bytes=upload.offset)
    log.info("upload of %s expired: %s", upload.phone, upload.reason, extra=facts)


def update_refused(upload: UploadRecord, error: Exception) -> None:
    """An upload that was complete before a restart was refused."""
    facts = event("update_refused", round=upload.round, phone=upload.phone, bytes=upload.length)
    log.warning("upload of %s, complete before the restart, refused: %s", upload.phone, error, extra=facts)


def upload_changed(upload: UploadRecord) -> None:
    """An upload that was complete before a restart does not match its announced hash; the phone must send it again."""
    facts = event("upload_changed", round=upload.round, phone=upload.phone, bytes=upload.length)
    text = "upload of %s, complete before the restart, does not match its hash; it must be sent again"
    log.warning(text, upload.phone, extra=facts)


def update_not_ingested(upload: UploadRecord, error: Exception) -> None:
    """An upload that was complete before the restart waits for the disk; its phone sends it again."""
    facts = event("update_not_ingested", round=upload.round, phone=upload.phone)
    log.error("update of %s cannot be stored, its phone sends it again: %s", upload.phone, error, extra=facts)


def round_closing(number: int, accepted: int) -> None:
    """A round takes no more updates; its model is being made."""
    facts = event("round_closing", round=number, accepted=accepted)
    log.info("round %d is closing: its model is trained from %d updates", number, accepted, extra=facts)


def closing_progress(number: int, share: float) -> None:
    """A tenth more of the work on a closing round's model is done."""
    facts = event("closing_progress", round=number, share=share)
    log.info("round %d is closing: %.0f %% of the work is done", number, 100 * share, extra=facts)


def round_closed(number: int, ending: Ending, model: str) -> None:
    """A round closed; `model` is the base of the next one."""
    facts = event("round_closed", round=number, ending=ending, model=model)
    log.info("round %d closed (%s): model %s", number, ending, model[:12], extra=facts)


def round_not_closed(number: int, error: Exception) -> None:
    """A round could not be closed because of a disk error."""
    facts = event("round_not_closed", round=number)
    log.error("round %d cannot be closed, retrying: %s", number, error, extra=facts)


def round_failed(number: int, reason: str, error: Exception) -> None:
    """A round's model could not be computed; an unexpected error (a bug) is logged with its traceback."""
    facts = event("round_failed", round=number, reason=reason)
    text = "round %d failed, its updates are kept: %s; delete them with: phonograd discard %d"
    bug = None if isinstance(error, PhonogradError) else error
    log.error(text, number, reason, number, extra=facts, exc_info=bug)


def rolled_back(to_round: int, number: int, model: str) -> None:
    """The server rolled back to the model of `to_round` and opened round `number` on it."""
    facts = event("rolled_back", to_round=to_round, round=number, model=model)
    log.warning("rolled back to the model of round %d; round %d is open", to_round, number, extra=facts)
