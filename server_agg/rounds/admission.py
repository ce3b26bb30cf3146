"""Which phones may take part in the open round: checked when an upload is created and again when it is complete."""

from dataclasses import dataclass

from sqlalchemy.orm import Session

from phonograd.server_agg.aggregation.correlation.run import Run
from phonograd.server_agg.aggregation.strategies import StrategySettings
from phonograd.server_agg.refusals import (
    DuplicatePhoneError,
    LateUpdateError,
    NotSelectedError,
    RestingPhoneError,
    RoundClosingError,
    RoundFullError,
    StaleUpdateError,
)
from phonograd.server_agg.rounds import noise_runs
from phonograd.server_agg.settings.rules import RoundRules
from phonograd.server_agg.storage import queries
from phonograd.server_agg.storage.tables import Round, UpdateState

TAKING_PART: tuple[UpdateState, ...] = ("accepted", "receiving")  # of a round's updates, those with a place in it


@dataclass(frozen=True)
class Admission:
    """What decides who takes part in a round, at a moment.

    sampled: only selected phones may take part
    halted: why no phone may
    closing: whether the round takes no more updates
    closes_at: the deadline in seconds since 1970, or None
    run, step: of dp-ftrl, and which of the run's rounds it is
    now, retry_seconds: of that moment; when a phone without a place should come again
    """

    number: int
    base_sha256: str
    rules: RoundRules
    sampled: bool
    halted: str | None
    closing: bool
    closes_at: float | None
    run: Run | None
    step: int
    now: float = 0.0
    retry_seconds: float = 0.0

    @classmethod
    def of_round(cls, row: Round, halted: str | None) -> "Admission":
        """Admission to the round of a row; `now` and `retry_seconds` are to be filled in."""
        rules, strategy = RoundRules.from_json(row.rules), StrategySettings.from_json(row.strategy)
        closing, run, step = row.closing_at is not None, noise_runs.run_of(row), row.run_step or 0
        deadline = closes_at(row, rules)
        return cls(row.number, row.base_sha256, rules, strategy.sampled, halted, closing, deadline, run, step)

    def check_phone(self, session: Session, phone: str) -> None:
        """Raise RoundClosingError, NotSelectedError, RestingPhoneError or RoundFullError if `phone` can't take part."""
        number, again = self.number, self.retry_seconds
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
        used_up, since = len(steps) >= run.max_participations, self.step - steps[-1]
        wait = run.planned_rounds - self.step + 1 if used_up else run.min_separation - since
        if wait < 1:
            return
        left = max((self.closes_at or 0.0) - self.now, 0.0)
        seconds = left + (wait - 1) * (self.rules.deadline_seconds or 0.0)
        took_part = f"phone {phone} took part"
        why = f"{took_part} {len(steps)} times, as often as it may (`max_participations`); ask when it is over"
        if not used_up:
            why = f"{took_part} {since} rounds ago, and rests for {wait} more (`min_separation`); come again"
        raise RestingPhoneError(
            f"round {self.number} of a run of dp-ftrl: {why}, in {seconds:.0f} s", max(seconds, self.retry_seconds)
        )

    def check_duplicate(self, session: Session, phone: str) -> None:
        """Raise DuplicatePhoneError if the round has an accepted update of `phone`."""
        if queries.has_update(session, self.number, phone, "accepted"):
            raise DuplicatePhoneError(
                f"phone {phone}: round {self.number} already has an update of this phone; wait for the next round"
            )

    def check_base(self, session: Session, base_sha256: str, number: int | None) -> Round | None:
        """Return the closed round of a late update that this one accepts; None for an update of its own model.

        An update of an earlier round is not late if the model has not changed since. Raises LateUpdateError if late
        updates are dropped, StaleUpdateError for an unknown model or round.
        """
        if base_sha256 == self.base_sha256 and number in (None, self.number):
            return None
        its_rounds = queries.rounds_from_model(session, base_sha256, number)
        if not its_rounds:
            claimed = "" if number is None else f"round {number} and "
            raise StaleUpdateError(
                f"the update is of {claimed}model {base_sha256[:12]}…, "
                f"expected round {self.number} and model {self.base_sha256[:12]}…; "
                "fetch the current model and train again"
            )
        if base_sha256 == self.base_sha256:
            return None
        rolled_back = its_rounds[-1].rolled_back_at is not None  # then updates of its model are unwanted too
        if self.rules.late == "drop" or self.sampled or self.run is not None or rolled_back:
            raise LateUpdateError(
                f"the update is of round {its_rounds[-1].number}, which is closed; round {self.number} is open: "
                "fetch its model and train again",
                self.retry_seconds,
            )
        return its_rounds[-1]


def closes_at(row: Round, rules: RoundRules) -> float | None:
    """The deadline of a round in seconds since 1970, or None."""
    seconds = rules.deadline_seconds
    return None if seconds is None else row.opened_at + seconds
