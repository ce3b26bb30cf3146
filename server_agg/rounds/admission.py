"""Which phones may take part in the open round: checked when an upload is created and again when it is complete."""

from dataclasses import dataclass

from sqlalchemy.orm import Session

from phonograd.server_agg.aggregation.correlation.run import Run
from phonograd.server_agg.refusals import (
    DuplicatePhoneError,
    LateUpdateError,
    NotSelectedError,
    RestingPhoneError,
    RoundClosingError,
    RoundFullError,
    StaleUpdateError,
)
from phonograd.server_agg.settings.rules import RoundRules
from phonograd.server_agg.storage import queries
from phonograd.server_agg.storage.tables import Round, UpdateState

TAKING_PART: tuple[UpdateState, ...] = ("accepted", "receiving")  # of a round's updates, those with a place in it


@dataclass(frozen=True)
class AdmissionState:
    """What admission needs of the open round. sampled: only selected phones may take part; halted: why no phone may;
    closing: whether the round takes no more updates; run, step: of dp-ftrl, and which of the run's rounds it is;
    seconds_left: until the deadline.
    """

    number: int
    base_sha256: str
    rules: RoundRules
    sampled: bool
    halted: str | None
    closing: bool
    retry_seconds: float
    run: Run | None = None
    step: int = 0
    seconds_left: float = 0.0


def check_phone(session: Session, state: AdmissionState, phone: str) -> None:
    """Raise RoundClosingError, NotSelectedError, RestingPhoneError or RoundFullError if `phone` can't take part in the
    open round.
    """
    number = state.number
    if state.closing and not queries.has_update(session, number, phone, "accepted"):  # else it sends its update again
        raise RoundClosingError(
            f"round {number}: closing, the server trains its model; come again in {state.retry_seconds:.0f} s",
            state.retry_seconds,
        )
    if state.halted is not None:
        raise NotSelectedError(state.halted, state.retry_seconds)
    if state.sampled:
        if not queries.is_selected(session, number, phone):
            raise NotSelectedError(
                f"phone {phone}: not selected for round {number}; ask again in the next round", state.retry_seconds
            )
        return  # every sampled phone may take part
    if state.run is not None:
        check_rest(session, state, state.run, phone)
        return  # so may every phone that has rested, whoever else does
    most = state.rules.max_clients
    if most is None or queries.has_update(session, number, phone, *TAKING_PART):
        return
    if queries.count_phones(session, number, *TAKING_PART) >= most:
        raise RoundFullError(
            f"round {number}: full, {most} phones take part; ask again in the next round", state.retry_seconds
        )


def check_rest(session: Session, state: AdmissionState, run: Run, phone: str) -> None:
    """Raise RestingPhoneError unless the run of dp-ftrl lets `phone` take part in the open round.

    Only rounds that published a model count, of phones and in between: others released nothing.
    """
    steps = queries.steps_of_phone(session, phone)
    if not steps:
        return
    used_up, since = len(steps) >= run.max_participations, state.step - steps[-1]
    wait = run.planned_rounds - state.step + 1 if used_up else run.min_separation - since
    if wait < 1:
        return
    seconds = state.seconds_left + (wait - 1) * (state.rules.deadline_seconds or 0.0)
    why = f"phone {phone} took part {len(steps)} times, as often as it may (`max_participations`); ask when it is over"
    if not used_up:
        why = f"phone {phone} took part {since} rounds ago, and rests for {wait} more (`min_separation`); come again"
    raise RestingPhoneError(
        f"round {state.number} of a run of dp-ftrl: {why}, in {seconds:.0f} s", max(seconds, state.retry_seconds)
    )


def check_duplicate(session: Session, state: AdmissionState, phone: str) -> None:
    """Raise DuplicatePhoneError if the open round has an accepted update of `phone`."""
    if queries.has_update(session, state.number, phone, "accepted"):
        raise DuplicatePhoneError(
            f"phone {phone}: round {state.number} already has an update of this phone; wait for the next round"
        )


def check_base(session: Session, state: AdmissionState, base_sha256: str, number: int | None) -> Round | None:
    """The closed round of a late update that the open round accepts; None for an update of the open round's model.

    An update of an earlier round is not late if the model has not changed since. Raises LateUpdateError if late updates
    are dropped, StaleUpdateError for an unknown model or round.
    """
    if base_sha256 == state.base_sha256 and number in (None, state.number):
        return None
    its_rounds = queries.rounds_from_model(session, base_sha256, number)
    if not its_rounds:
        claimed = "" if number is None else f"round {number} and "
        raise StaleUpdateError(
            f"the update is of {claimed}model {base_sha256[:12]}…, "
            f"expected round {state.number} and model {state.base_sha256[:12]}…; "
            "fetch the current model and train again"
        )
    if base_sha256 == state.base_sha256:
        return None
    rolled_back = its_rounds[-1].rolled_back_at is not None  # then updates of its model are unwanted too
    if state.rules.late == "drop" or state.sampled or state.run is not None or rolled_back:
        raise LateUpdateError(
            f"the update is of round {its_rounds[-1].number}, which is closed; round {state.number} is open: "
            "fetch its model and train again",
            state.retry_seconds,
        )
    return its_rounds[-1]
