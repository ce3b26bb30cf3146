"""The events that the coordinator logs, each with its text and the fields that docs/watching.md lists."""

import logging
from collections.abc import Mapping

from phonograd.device_runtime.base.errors import PhonogradError
from phonograd.server_agg.log_format import event

log = logging.getLogger(__name__)

_WHOLE = "upload of %(phone)s, all of which came before its request broke off,"
_TEXTS: Mapping[str, tuple[int, str]] = {
    "update_accepted": (logging.INFO, "round %(round)d: %(phone)s accepted, %(accepted)d of %(needed)d"),
    "update_repeated": (logging.INFO, "round %(round)d: %(phone)s sent the same update again; not counted twice"),
    "upload_expired": (logging.INFO, "upload of %(phone)s expired: %(why)s"),
    "update_refused": (logging.WARNING, f"{_WHOLE} refused: %(why)s"),
    "upload_changed": (logging.WARNING, f"{_WHOLE} does not match its hash; it must be sent again"),
    "update_not_ingested": (logging.ERROR, "update of %(phone)s cannot be stored, its phone sends it again: %(why)s"),
    "round_closing": (logging.INFO, "round %(round)d is closing: its model is trained from %(accepted)d updates"),
    "closing_progress": (logging.INFO, "round %(round)d is closing: %(why)s of the work is done"),
    "round_closed": (logging.INFO, "round %(round)d closed (%(ending)s): model %(model).12s; %(why)s"),
    "round_not_closed": (logging.ERROR, "round %(round)d cannot be closed, retrying: %(why)s"),
    "sum_lost": (
        logging.WARNING,
        "round %(round)d: the sum of %(updates)d updates is lost, they are folded again: %(why)s",
    ),
    "round_failed": (
        logging.ERROR,
        "round %(round)d failed, its updates are kept: %(reason)s; delete them with: phonograd discard %(round)d",
    ),
    "masked_round_failed": (
        logging.ERROR,
        "round %(round)d failed, its masked updates are deleted, nothing was released: %(reason)s",
    ),
    "rolled_back": (logging.WARNING, "rolled back to the model of round %(to_round)d; round %(round)d is open"),
}


def log_event(name: str, why: object = "", /, **fields: object) -> None:
    """Log an event. why: for its text alone; an error that no rule foresees, a bug, is logged with its traceback."""
    level, text = _TEXTS[name]
    bug = why if isinstance(why, Exception) and not isinstance(why, PhonogradError) else None
    log.log(level, text, {**fields, "why": why}, extra=event(name, **fields), exc_info=bug)
