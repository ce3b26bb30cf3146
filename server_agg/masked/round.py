"""A masked round over the ledger: it takes its phones' messages, moves from stage to stage, and answers.

What was accepted is in the ledger before it is answered, and so is the stage that an answer shows. After a restart the
round goes on from there.
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from phonograd.device_runtime.base.errors import UpdateError, UsageError
from phonograd.device_runtime.masked.cohort import MaskedCohort, MaskedSum, Masking
from phonograd.server_agg.log_format import event
from phonograd.server_agg.masked.stages import ORDER, Facts, Gathering, Stage, Uploading
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
from phonograd.server_agg.storage.tables import MessageKind, Round, StageName

log = logging.getLogger(__name__)

RequestKind = MessageKind | Literal["list"]
Document = Mapping[str, Any]
# The first stage in which a message can be answered.
ANSWERED_FROM: Mapping[RequestKind, StageName] = {
    "keys": "drawing",
    "draws": "sharing",
    "shares": "uploading",
    "list": "agreeing",
    "agreement": "answering",
    "answer": "answering",
}
POLLS = 8  # of a phone in a stage's time, while it waits


class MaskedRound:
    """The masked round of a ledger's row, for one thread at a time, but for `check_uploader`.

    early: whether a full cohort need not wait for the round's deadline. parameters: weights of the model that are not
    frozen. retry_seconds: when a phone without a place should come again.
    failure: why the round has failed, once it has.
    """

    def __init__(
        self, row: Round, early: bool, parameters: int, ledger: Ledger, masking: Masking, retry_seconds: float
    ):
        self.settings = MaskedSettings.from_json(str(row.masked))
        self.failure: str | None = None
        self._row, self._early, self._parameters = row, early, parameters
        self._ledger, self._masking, self._retry_seconds = ledger, masking, retry_seconds
        self._stage: Stage | None = None
        self._since = 0.0
        self._shares: dict[str, dict[str, str]] | None = None

    def close(self) -> None:
        """Forget what is in memory."""
        stage, self._stage, self._shares = self._stage, None, None
        if stage is not None:
            stage.facts.cohort.close()

    @property
    def stage(self) -> Stage:
        """Where it is; restored from the ledger if needed."""
        if self._stage is None:
            self._stage = self._restored()
        return self._stage

    @property
    def over(self) -> bool:
        """Whether all is there for the sum."""
        return self.stage.name == "over"

    @property
    def cohort(self) -> MaskedCohort:
        """What the cohort has agreed on so far."""
        return self.stage.facts.cohort

    @property
    def poll_seconds(self) -> float:
        """When a phone that waits should ask again."""
        return max(1.0, self.settings.stage_seconds / POLLS)

    def _restored(self) -> Stage:
        row, settings = self._row, self.settings
        cohort = self._masking.cohort(row.number, row.base_sha256, settings.text, settings.vendor)
        try:
            self.about = cohort.about(self._parameters)
            with self._ledger.reading() as session:
                wanted = cohorts.stage_of(session, row.number)
                self._since = cohorts.since_of(session, row.number) if wanted else 0.0
                kinds: tuple[MessageKind, ...] = get_args(MessageKind)
                messages = {kind: cohorts.messages_of(session, row.number, kind) for kind in kinds}
                alive = {update.phone for update in queries.accepted_updates(session, row.number)}
            stage: Stage = Gathering(Facts(settings, self._early, cohort, messages, alive))
            while stage.name != (wanted or "gathering"):
                stage = stage.following()
        except BaseException:
            cohort.close()
            raise
        return stage

    def take(
        self, kind: RequestKind, phone: str, message: Document, now: float, closes_at: float | None
    ) -> Document | None:
        """Take a message, or the same again. Returns its answer; None: it comes later, and the phone asks again.

        Raises RefusalError, with nothing changed, and StorageError.
        """
        self.advance(now, closes_at)
        if kind == "list":
            self._require_member(phone)
        elif not self._known(kind, phone, message):
            self._accept(kind, phone, message)
            self.advance(now, closes_at)
        return self._answer(kind, phone)

    def _known(self, kind: MessageKind, phone: str, message: Document) -> bool:
        known = self.stage.facts.messages[kind].get(phone)
        if known is not None and known != message:
            raise OtherMessageError(
                f"phone {phone}: round {self._row.number} has another message of its {kind}, which stands; "
                "send that again, or take part in the next round"
            )
        return known is not None

    def _accept(self, kind: MessageKind, phone: str, message: Document) -> None:
        stage, number = self.stage, self._row.number
        if self.failure is not None:
            raise RoundFailedError(f"round {number}: failed: {self.failure}; take part in the next one")
        if stage.kind != kind or (stage.invited is not None and phone not in stage.invited):
            raise self._no_place(phone)
        if stage.name == "gathering" and len(stage.through) >= self.settings.cohort:
            raise RoundFullError(f"round {number}: its cohort is full; take part in the next one", self._retry_seconds)
        try:
            stage.check(phone, message)
        except UpdateError as error:
            raise InvalidMessageError(f"round {number}: {error}") from error
        with self._ledger.writing() as session:
            cohorts.add_message(session, number, kind, phone, message)
        stage.facts.messages[kind][phone] = dict(message)

    def _no_place(self, phone: str) -> NotOfCohortError:
        return NotOfCohortError(
            f"phone {phone}: not awaited in round {self._row.number}, which is {self.stage.name}; "
            "take part in the next one",
            self._retry_seconds,
        )

    def _require_member(self, phone: str) -> None:
        if phone not in self.stage.facts.messages["shares"]:
            raise self._no_place(phone)

    def _answer(self, kind: RequestKind, phone: str) -> Document | None:
        messages, passed = self.stage.facts.messages, ORDER.index(self.stage.name)
        if passed < ORDER.index(ANSWERED_FROM[kind]):
            return None
        answers: Mapping[RequestKind, Callable[[], Document]] = {
            "keys": lambda: {"cohort": list(messages["keys"].values())},
            "draws": lambda: {"draws": {one: told["draw"] for one, told in messages["draws"].items()}},
            "shares": lambda: {"members": sorted(messages["shares"]), "shares": self._shares_for(phone)},
            "list": lambda: {"alive": sorted(self.stage.facts.alive)},
            "agreement": lambda: {
                "signatures": {one: said["signature"] for one, said in messages["agreement"].items()}
            },
            "answer": dict,
        }
        return answers[kind]()

    def _shares_for(self, phone: str) -> dict[str, str]:
        if self._shares is None:
            shares: dict[str, dict[str, str]] = {one: {} for one in self.stage.facts.messages["keys"]}
            for sender, message in self.stage.facts.messages["shares"].items():
                for holder, sealed in message["shares"].items():
                    shares[holder][sender] = sealed
            self._shares = shares
        return self._shares[phone]

    def advance(self, now: float, closes_at: float | None) -> None:
        """Go on to the next stage if this one has ended; `failure` says why not, if it has in vain."""
        self._see_updates()
        while self.failure is None and self.stage.ended(now, self._since, closes_at):
            stage = self.stage
            if len(stage.through) < stage.least:
                self.failure = f"{stage.name}: at least {stage.least} phones expected, {len(stage.through)} got through"
                return
            try:
                self._go_on(stage, now)
            except (UpdateError, UsageError) as error:
                self.failure = f"{stage.name}: {one_line(error)}"

    def _go_on(self, stage: Stage, now: float) -> None:
        try:
            following = stage.following()
            with self._ledger.writing() as session:
                ended = {**cohorts.counts_of(session, self._row.number), stage.name: len(stage.through)}
                cohorts.set_stage(session, self._row.number, following.name, now, ended)
                if stage.name == "uploading":
                    facts = stage.facts
                    cohort, alive = len(facts.messages["keys"]), len(facts.alive)
                    noise = self.settings.effective_noise(self.about.values, cohort, alive)
                    cohorts.set_noise(session, self._row.number, noise)
        except BaseException:
            self.close()  # the cohort may know more than the ledger
            raise
        self._stage, self._since = following, now

    def _see_updates(self) -> None:
        stage = self.stage
        if not isinstance(stage, Uploading):
            return
        with self._ledger.reading() as session:
            if queries.count_updates(session, self._row.number, "accepted") != len(stage.facts.alive):
                accepted = queries.accepted_updates(session, self._row.number)
                stage.facts.alive.update(update.phone for update in accepted)

    def check_entry(self, phone: str) -> None:
        """Raise NotOfCohortError if a phone can't come to the cohort, and is not in it. Any thread may call it."""
        stage = self._stage
        if stage is not None and stage.name != "gathering" and phone not in stage.facts.messages["keys"]:
            raise self._no_place(phone)

    def check_uploader(self, phone: str) -> None:
        """Raise NotOfCohortError unless a phone's masked update is awaited. Any thread may call it."""
        stage = self._stage
        if not isinstance(stage, Uploading) or phone not in stage.invited:
            raise self._no_place(phone)

    def new_sum(self) -> MaskedSum:
        """An empty sum of its updates."""
        _ = self.stage
        return self._masking.sum(self.about.values, self.about.width)

    def add(self, total: MaskedSum, path: Path) -> None:
        """Add a masked update that was checked."""
        total.add(self.cohort, path)

    def unmask(self, total: MaskedSum) -> int:
        """By the answers. The weight of all phones. Raises UpdateError."""
        unmasked = total.unmask(self.cohort, self.stage.facts.messages["answer"])
        if unmasked.wrong:
            wrong = ", ".join(unmasked.wrong)
            log.warning("shares of %s did not fit", wrong, extra=event("wrong_shares", phones=wrong))
        return unmasked.weight
