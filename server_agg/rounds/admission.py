"""Who may take part in the open round, asked when an upload is announced and again when it is complete."""

from dataclasses import dataclass

from sqlalchemy.orm import Session

from phonograd.server_agg.refusals import (
    DuplicatePhoneError,
    LateUpdateError,
    NotSelectedError,
    RoundFullError,
    StaleUpdateError,
)
from phonograd.server_agg.settings.rules import RoundRules
from phonograd.server_agg.storage import queries
from phonograd.server_agg.storage.tables import Round


@dataclass(frozen=True)
class AdmissionState:
    """The open round as admission sees it: its row's facts, its rules, and why it takes nobody, if it does not."""

    number: int
    base_sha256: str
    rules: RoundRules
    sampled: bool
    halted: str | None
    retry_seconds: float


def check_phone(session: Session, state: AdmissionState, phone: str) -> None:
    """Raise NotSelectedError, DuplicatePhoneError or RoundFullError if `phone` can't take part in the open round."""
    if state.halted is not None:
        raise NotSelectedError(state.halted, state.retry_seconds)
    if state.sampled and phone not in queries.selected_phones(session, state.number):
        raise NotSelectedError(
            f"phone {phone}: not among those drawn for round {state.number}; ask again in the next round",
            state.retry_seconds,
        )
    taking_part = {update.phone for update in queries.unfinished_updates(session) if update.round == state.number} | {
        update.phone for update in queries.accepted_updates(session, state.number)
    }
    most = None if state.sampled else state.rules.max_clients  # every phone that was drawn has a place
    if most is not None and phone not in taking_part and len(taking_part) >= most:
        raise RoundFullError(
            f"round {state.number}: {most} phones take part, the most that may; ask again in the next round",
            state.retry_seconds,
        )


def check_duplicate(session: Session, state: AdmissionState, phone: str) -> None:
    """Raise DuplicatePhoneError if the open round has an update of `phone`."""
    for update in queries.updates_of_phone(session, phone, "accepted"):
        if update.round == state.number:
            raise DuplicatePhoneError(
                f"phone {phone}: one update a round accepted, found another in round {state.number}; "
                "wait for the next round"
            )


def check_base(session: Session, state: AdmissionState, base_sha256: str, number: int | None) -> Round | None:
    """The closed round that an update belongs to, if it is late and its rules let it in; None if it is of the open one.

    An update of an earlier round is not late while the model is still the same (rounds that changed nothing). Raises
    LateUpdateError where late ones are dropped, StaleUpdateError for a model or a round this server never sent.
    """
    its_rounds = queries.rounds_from_model(session, base_sha256)
    if number is not None:
        its_rounds = [round_ for round_ in its_rounds if round_.number == number]
    if not its_rounds:
        claimed = "" if number is None else f"round {number} and "
        raise StaleUpdateError(
            f"the update is of {claimed}model {base_sha256[:12]}…, "
            f"expected round {state.number} and model {state.base_sha256[:12]}…; "
            "fetch the current model and train again"
        )
    if base_sha256 == state.base_sha256:
        return None
    rolled_back = its_rounds[-1].rolled_back_at is not None  # what was learned from its model is not wanted either
    if state.rules.late == "drop" or state.sampled or rolled_back:
        raise LateUpdateError(
            f"the update is of round {its_rounds[-1].number}, which is over; round {state.number} is open: "
            "fetch its model and train again",
            state.retry_seconds,
        )
    return its_rounds[-1]
