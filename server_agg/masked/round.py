"""A masked round over the ledger: it takes its phones' messages, moves from stage to stage, and answers.

What was accepted is in the ledger before it is answered, and so is the stage that an answer shows. After a restart the
round goes on from there.
"""

from phonograd.device_runtime.base.errors import UpdateError, UsageError
from phonograd.device_runtime.formats.tensor_file import TensorFile
from phonograd.device_runtime.masked.cohort import MaskedCohort
from phonograd.server_agg.masked.stages import STAGES, Document, Facts, RequestKind
from phonograd.server_agg.refusals import (
    InvalidMessageError,
    NotOfCohortError,
    OtherMessageError,
    RoundFailedError,
    RoundFullError,
    one_line,
)
from phonograd.server_agg.settings.masked import MaskedSettings
from phonograd.server_agg.storage import cohorts, queries
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.tables import Cohort, MessageKind, Round

POLLS = 8  # of a phone in a stage's time, while it waits


class NoStages:
    """What other rounds have in place of a MaskedRound."""

    def advance(self, *_: object) -> str | None:
        """There is nothing to go on to."""

    def check_entry(self, phone: str) -> None:
        """No phone comes too late."""

    def check_uploader(self, phone: str) -> None:
        """Nor needs one to have come before."""

    def poll_seconds(self, usual: float) -> float:
        """No phone waits for others."""
        return usual


class MaskedRound:
    """The masked round of a ledger's row, for one thread at a time, but for `check_entry` and `check_uploader`.

    early: whether a full cohort need not wait for the round's deadline. model: its base. retry_seconds: when a phone
    without a place should come again. failure: why the round has failed, once it has.
    """

    def __init__(self, row: Round, early: bool, model: TensorFile, ledger: Ledger, retry_seconds: float):
        self.settings = MaskedSettings.from_json(str(row.masked))
        self._about = self.settings.about(model)
        self.failure: str | None = None
        self._row, self._early, self._ledger, self._retry_seconds = row, early, ledger, retry_seconds
        self._facts: Facts | None = self._restore()

    @property
    def facts(self) -> Facts:
        """What is known of its cohort; restored from the ledger if needed."""
        if self._facts is None:
            self._facts = self._restore()
        return self._facts

    @property
    def over(self) -> bool:
        """Whether all is there for the sum."""
        return self.facts.stage.name == "over"

    def poll_seconds(self, usual: float) -> float:
        """Seconds after which a phone that waits should ask again."""
        del usual
        return max(1.0, self.settings.stage_seconds / POLLS)

    def _restore(self) -> Facts:
        row, settings = self._row, self.settings
        with self._ledger.reading() as session:
            known = session.get(Cohort, row.number)
            messages = cohorts.messages_of(session, row.number)
            alive = {update.phone for update in queries.accepted_updates(session, row.number)}
        cohort = MaskedCohort(row.number, row.base_sha256, settings.text, settings.vendor)
        facts = Facts(settings, self._early, cohort, messages, alive)
        while known is not None and facts.stage.name != known.stage:
            facts.fix()
            facts.place, facts.since = facts.place + 1, known.since
        return facts

    def take(
        self, kind: RequestKind, phone: str, message: Document, now: float, closes_at: float | None
    ) -> Document | None:
        """Take a message, or the same again. Returns its answer; None: it comes later, and the phone asks again.

        Raises RefusalError, with nothing changed, and StorageError.
        """
        self.advance(now, closes_at)
        if kind == "list":
            if phone not in self.facts.messages["shares"]:
                raise self._no_place(phone, self.facts)
        elif not self._is_known(kind, phone, message):
            self._accept(kind, phone, message)
            self.advance(now, closes_at)
        return self.facts.answer(kind, phone)

    def _is_known(self, kind: MessageKind, phone: str, message: Document) -> bool:
        known = self.facts.messages[kind].get(phone)
        if known is not None and known != message:
            raise OtherMessageError(
                f"phone {phone}: round {self._row.number} has another message of its {kind}, which stands; "
                "send that again, or take part in the next round"
            )
        return known is not None

    def _accept(self, kind: MessageKind, phone: str, message: Document) -> None:
        facts, number = self.facts, self._row.number
        if self.failure is not None:
            raise RoundFailedError(f"round {number}: failed: {self.failure}; take part in the next one")
        if self.over or not facts.takes(kind) or not facts.invites(phone):
            raise self._no_place(phone, facts)
        if kind == "keys" and len(facts.through) >= self.settings.cohort:
            raise RoundFullError(f"round {number}: its cohort is full; take part in the next one", self._retry_seconds)
        try:
            facts.check(kind, phone, message)
        except UpdateError as error:
            raise InvalidMessageError(f"round {number}: {error}") from error
        with self._ledger.writing() as session:
            cohorts.add_message(session, number, kind, phone, message)
        facts.messages[kind][phone] = dict(message)

    def _no_place(self, phone: str, facts: Facts | None) -> NotOfCohortError:
        where = "" if facts is None else f", which is {facts.stage.name}"
        return NotOfCohortError(
            f"phone {phone}: not awaited in round {self._row.number}{where}; take part in the next one",
            self._retry_seconds,
        )

    def advance(self, now: float, closes_at: float | None) -> str | None:
        """Go on to the next stage if this one has ended. Returns `failure`: why not, if it has in vain."""
        self._see_updates()
        while self.failure is None and self.facts.is_over(now, closes_at):
            facts, name = self.facts, self.facts.stage.name
            if len(facts.through) < facts.least:
                self.failure = f"{name}: at least {facts.least} phones expected, {len(facts.through)} got through"
                break
            try:
                self._go_on(facts, now)
            except (UpdateError, UsageError) as error:
                self.failure = f"{name}: {one_line(error)}"
        return self.failure

    def _go_on(self, facts: Facts, now: float) -> None:
        ended, through = facts.stage.name, len(facts.through)
        try:
            facts.fix()
            with self._ledger.writing() as session:
                following = STAGES[facts.place + 1].name
                row = cohorts.begin_stage(session, self._row.number, following, now, ended, through)
                if ended == "uploading":
                    row.noise = self.settings.effective_noise(self._about, len(facts.messages["keys"]), through)
        except BaseException:
            self._facts = None  # the cohort may know more than the ledger
            raise
        facts.place, facts.since = facts.place + 1, now

    def _see_updates(self) -> None:
        facts = self.facts
        if facts.stage.name != "uploading":
            return
        with self._ledger.reading() as session:
            if queries.count_updates(session, self._row.number, "accepted") != len(facts.alive):
                accepted = queries.accepted_updates(session, self._row.number)
                facts.alive.update(update.phone for update in accepted)

    def check_entry(self, phone: str) -> None:
        """Raise NotOfCohortError if a phone can't come to the cohort, and is not in it. Any thread may call it."""
        facts = self._facts
        if facts is not None and facts.place > 0 and phone not in facts.messages["keys"]:
            raise self._no_place(phone, facts)

    def check_uploader(self, phone: str) -> None:
        """Raise NotOfCohortError unless a phone's masked update is awaited. Any thread may call it."""
        facts = self._facts
        if facts is None or facts.stage.name != "uploading" or not facts.invites(phone):
            raise self._no_place(phone, facts)
        if phone not in facts.messages["members"]:
            raise OtherMessageError(f"phone {phone}: its signature of the members expected before its update")
