"""What the coordinator tells the log: a line for people and its facts as fields, an event each."""

import logging

from phonograd.device_runtime.base.errors import PhonogradError
from phonograd.server_agg.log_format import event
from phonograd.server_agg.rounds.uploads import UploadRecord
from phonograd.server_agg.storage.tables import Ending, Update

log = logging.getLogger(__name__)


def update_accepted(row: Update, number: int, taken: int, needed: int) -> None:
    """An update counts in round `number`: the `taken`-th of `needed`."""
    facts = event("update_accepted", round=number, phone=row.phone, bytes=row.length, accepted=taken, needed=needed)
    log.info("round %d: %s accepted, %d of %d", number, row.phone, taken, needed, extra=facts)


def update_repeated(row: Update, number: int, nbytes: int) -> None:
    """A phone sent again what counts already."""
    facts = event("update_repeated", round=number, phone=row.phone, bytes=nbytes)
    log.info("round %d: %s sent the same update again; not counted twice", number, row.phone, extra=facts)


def upload_expired(upload: UploadRecord) -> None:
    """An upload was given up."""
    facts = event("upload_expired", round=upload.round, phone=upload.phone, bytes=upload.offset)
    log.info("upload of %s expired: %s", upload.phone, upload.reason, extra=facts)


def update_refused(upload: UploadRecord, error: Exception) -> None:
    """What had arrived whole before a restart is no update that counts."""
    facts = event("update_refused", round=upload.round, phone=upload.phone, bytes=upload.length)
    log.warning("upload of %s, complete before the restart, refused: %s", upload.phone, error, extra=facts)


def upload_changed(upload: UploadRecord) -> None:
    """What had arrived whole before a restart has another hash than was announced; it is sent again."""
    facts = event("upload_changed", round=upload.round, phone=upload.phone, bytes=upload.length)
    text = "upload of %s, complete before the restart: its bytes changed on their way"
    log.warning(text, upload.phone, extra=facts)


def round_closed(number: int, ending: Ending, model: str) -> None:
    """A round is over; `model` is the next one's base."""
    facts = event("round_closed", round=number, ending=ending, model=model)
    log.info("round %d closed (%s): model %s", number, ending, model[:12], extra=facts)


def round_not_closed(number: int, error: Exception) -> None:
    """The disk refused."""
    facts = event("round_not_closed", round=number)
    log.error("round %d is due and could not be closed, it is tried again: %s", number, error, extra=facts)


def round_failed(number: int, reason: str, error: Exception) -> None:
    """A round's model could not be made; a bug, which is an error of none of our kinds, shows its traceback."""
    facts = event("round_failed", round=number, reason=reason)
    text = "round %d failed, its updates are kept: %s; delete them with: phonograd discard %d"
    bug = None if isinstance(error, PhonogradError) else error
    log.error(text, number, reason, number, extra=facts, exc_info=bug)


def rolled_back(to_round: int, number: int, model: str) -> None:
    """The model of `to_round` is the current one again, and round `number` is open on it."""
    facts = event("rolled_back", to_round=to_round, round=number, model=model)
    log.warning("rolled back to the model of round %d; round %d is open", to_round, number, extra=facts)
