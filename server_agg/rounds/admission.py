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
class Admission:
    """What decides who takes part in the round of `row`, at a moment.

    sampled: only selected phones may take part
    halted: why no phone may
    run: of dp-ftrl
    now, retry_seconds: of that moment; when a phone without a place should come again
    """

    row: Round
    rules: RoundRules
    sampled: bool
    halted: str | None
    run: Run | None
    now: float = 0.0
    retry_seconds: float = 0.0

    @property
    def closing(self) -> bool:
        """Whether the round takes no more updates."""
        return self.row.closing_at is not None

    def check_phone(self, session: Session, phone: str) -> None:
        """Raise RoundClosingError, NotSelectedError, RestingPhoneError or RoundFullError if `phone` can't take part."""
        number, again = self.row.number, self.retry_seconds
        # A phone whose update was accepted sends it again.
        if self.closing and not queries.has_update(session, number, phone, "accepted"):
            raise RoundClosingError(
                f"round {number}: closing, the server trains its model; come again in {again:.0f} s", again
            )
        if self.halted is not None:
            raise NotSelectedError(self.halted, again)
        if self.sampled:
            if not queries.is_selected(session, number, phone):
                raise NotSelectedError(
                    f"phone {phone}: not selected for round {number}; ask again in the next round", again
                )
            return  # every sampled phone may take part
        if self.run is not None:
            self._check_rest(session, self.run, phone)
            return  # so may every phone that has rested, whoever else does
        most = self.rules.max_clients
        if most is None or queries.has_update(session, number, phone, *TAKING_PART):
            return
        if queries.count_phones(session, number, *TAKING_PART) >= most:
            raise RoundFullError(f"round {number}: full, {most} phones take part; ask again in the next round", again)

    def _check_rest(self, session: Session, run: Run, phone: str) -> None:
        """Raise RestingPhoneError unless the run of dp-ftrl lets `phone` take part.

        Only rounds that published a model count, of phones and in between: others released nothing.
        """
        steps = queries.steps_of_phone(session, phone)
        if not steps:
            return
        step = self.row.run_step or 0
        used_up, since = len(steps) >= run.max_participations, step - steps[-1]
        wait = run.planned_rounds - step + 1 if used_up else run.min_separation - since
        if wait < 1:
            return
        left = max((closes_at(self.row, self.rules) or 0.0) - self.now, 0.0)
        seconds = left + (wait - 1) * (self.rules.deadline_seconds or 0.0)
        took_part = f"phone {phone} took part"
        why = f"{took_part} {len(steps)} times, as often as it may (`max_participations`); ask when it is over"
        if not used_up:
            why = f"{took_part} {since} rounds ago, and rests for {wait} more (`min_separation`); come again"
        raise RestingPhoneError(
            f"round {self.row.number} of a run of dp-ftrl: {why}, in {seconds:.0f} s", max(seconds, self.retry_seconds)
        )

    def check_duplicate(self, session: Session, phone: str) -> None:
        """Raise DuplicatePhoneError if the round has an accepted update of `phone`."""
        if queries.has_update(session, self.row.number, phone, "accepted"):
            raise DuplicatePhoneError(
                f"phone {phone}: round {self.row.number} already has an update of this phone; wait for the next round"
            )

    def check_base(self, session: Session, base_sha256: str, number: int | None) -> Round | None:
        """Return the closed round of a late update that this one accepts; None for an update of its own model.

        An update of an earlier round is not late if the model has not changed since. Raises LateUpdateError if late
        updates are dropped, StaleUpdateError for an unknown model or round.
        """
        if base_sha256 == self.row.base_sha256 and number in (None, self.row.number):
            return None
        its_rounds = queries.rounds_from_model(session, base_sha256, number)
        if not its_rounds:
            if base_sha256 == self.row.base_sha256:
                raise StaleUpdateError(
                    f"the update is of round {number}, expected round {self.row.number}, which has the same model; "
                    f"make it with `round_number` {self.row.number} (--round)"
                )
            claimed = "" if number is None else f"round {number} and "
            raise StaleUpdateError(
                f"the update is of {claimed}model {base_sha256[:12]}…, "
                f"expected round {self.row.number} and model {self.row.base_sha256[:12]}…; "
                "fetch the current model and train again"
            )
        if base_sha256 == self.row.base_sha256:
            return None
        rolled_back = its_rounds[-1].rolled_back_at is not None  # then updates of its model are unwanted too
        if self.rules.late == "drop" or self.sampled or self.run is not None or rolled_back:
            raise LateUpdateError(
                f"the update is of round {its_rounds[-1].number}, which is closed; round {self.row.number} is open: "
                "fetch its model and train again",
                self.retry_seconds,
            )
        return its_rounds[-1]


def closes_at(row: Round, rules: RoundRules) -> float | None:
    """The deadline of a round in seconds since 1970, or None."""
    seconds = rules.deadline_seconds
    return None if seconds is None else row.opened_at + seconds
