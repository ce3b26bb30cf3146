"""The stages of a masked round: whom each waits for, what they send, when it ends, what it fixes.

What one fixes is never fixed again: a stage that has ended takes no message, and after a restart the same messages lead
to the same stage.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from phonograd.device_runtime.base.errors import UpdateError
from phonograd.device_runtime.masked.cohort import MaskedCohort
from phonograd.server_agg.settings.masked import MaskedSettings
from phonograd.server_agg.storage.cohorts import Messages
from phonograd.server_agg.storage.tables import MessageKind, StageName

KEYS = ("identity", "sealing", "masking")  # no two phones may have the same
RequestKind: TypeAlias = MessageKind | Literal["list"]
Document: TypeAlias = Mapping[str, Any]


class Stage(NamedTuple):
    """A stage: `kind` is that of its phones' messages; where it is a list, they sign the members, send updates, and ask
    for that.

    invited: who may send one, by the message that they sent before; None: whoever comes. awaited: those of them without
    whom it does not end before its time.
    """

    name: StageName
    kind: RequestKind
    invited: MessageKind | None
    awaited: RequestKind


STAGES = (
    # Phones that have an update send their keys, until the cohort is full or the round's deadline has passed.
    Stage("gathering", "keys", None, "keys"),
    # Each phone of the cohort tells its draw, which nobody could know when the cohort was fixed.
    Stage("drawing", "draws", "keys", "keys"),
    # Each sends the shares of its secrets, sealed for its neighbours, and is then a member.
    Stage("sharing", "shares", "draws", "draws"),
    # Each member signs who the members are, then sends its masked update. Those whose update was accepted are alive.
    Stage("uploading", "list", "shares", "shares"),
    # Members sign the list of those that are alive, so that nobody is shown another one. The dead rarely come.
    Stage("agreeing", "agreement", "shares", "list"),
    # Those that have seen and signed the list send their self masks, and the shares that they hold: of the alive's self
    # masks, of the dead's keys.
    Stage("answering", "answer", "shares", "agreement"),
    # All is there for the sum, which can be unmasked.
    Stage("over", "answer", "shares", "answer"),
)


@dataclass
class Facts:
    """What is known of a cohort, and its stage: `place`, since when. messages: those accepted, by kind and phone.

    early: whether gathering ends with the last phone that has room, before the round's deadline. alive: phones whose
    update was accepted. agree: how many phones must agree on these, once the cohort is fixed.
    """

    settings: MaskedSettings
    early: bool
    cohort: MaskedCohort
    messages: Mapping[MessageKind, Messages]
    alive: set[str]
    agree: int = 0
    place: int = 0
    since: float = 0.0

    @property
    def stage(self) -> Stage:
        """The stage that has begun."""
        return STAGES[self.place]

    def senders(self, kind: RequestKind) -> Collection[str]:
        """The phones whose message of a kind was accepted; for a list, whose update was."""
        return self.alive if kind == "list" else self.messages[kind]

    def takes(self, kind: RequestKind) -> bool:
        """Whether messages of a kind are the stage's."""
        return kind == self.stage.kind or (kind == "members" and self.stage.kind == "list")

    def invites(self, phone: str) -> bool:
        """Whether the stage waits for a phone."""
        return self.stage.invited is None or phone in self.messages[self.stage.invited]

    @property
    def through(self) -> Collection[str]:
        """The phones that are through with the stage."""
        return self.senders(self.stage.kind)

    @property
    def least(self) -> int:
        """Phones that must get through, or the round fails."""
        # Whether answers suffice to put the secrets together is seen when they are.
        others: Mapping[StageName, int] = {"agreeing": self.agree, "answering": 1}
        return others.get(self.stage.name, self.settings.min_cohort)

    def is_over(self, now: float, closes_at: float | None) -> bool:
        """Whether all are through with the stage, or its time is over. closes_at: the round's deadline."""
        through, settings = self.through, self.settings
        if self.stage.name == "gathering":
            full = self.early and len(through) >= settings.cohort
            return full or (closes_at is not None and now >= closes_at and len(through) >= settings.min_cohort)
        late = now >= self.since + settings.stage_seconds
        return self.stage.name != "over" and (
            late or all(phone in through for phone in self.senders(self.stage.awaited))
        )

    def check(self, kind: RequestKind, phone: str, message: Document) -> None:
        """Check an invited phone's message, as far as it alone shows. Raises UpdateError."""
        match kind:
            case "keys":
                self.cohort.check_keys(message)
                self._check_fresh(phone, message)
            case "draws":
                self.cohort.check_draw(phone, message)
            case "shares":
                self.cohort.check_shares(phone, message)
            case "members":
                self.cohort.check_members(phone, message["signature"])
            case "agreement":
                self.cohort.check_agreement(phone, message["signature"])
            case "answer":
                self.cohort.check_answer(phone, message)

    def _check_fresh(self, phone: str, message: Document) -> None:
        keys = [message[name] for name in KEYS]
        taken = {other[name] for other in self.messages["keys"].values() for name in KEYS}
        if len(set(keys)) < len(KEYS) or not taken.isdisjoint(keys):
            raise UpdateError(f"phone {phone}: keys of its own expected, found one that comes twice; draw new ones")

    def fix(self) -> None:
        """Fix what the stage was for. Raises UpdateError if that can't be fixed."""
        match self.stage.name:
            case "gathering":
                self.agree = self.cohort.fix(self.messages["keys"].values()).agree
            case "drawing":  # who is whose neighbour
                self.cohort.draws(self._draws)
            case "sharing":
                self.cohort.members(self.messages["shares"])
            case "uploading":
                self.cohort.list(self.alive, self._signatures("members"))

    def answer(self, kind: RequestKind, phone: str) -> Document | None:
        """What a phone that sent a message of that kind is told; None: not yet."""
        if kind in ("members", "answer"):
            return {}  # there is nothing to wait for
        if all(stage.kind != kind for stage in STAGES[: self.place]):
            return None
        sent = self.messages
        held = {one: told["shares"][phone] for one, told in sent["shares"].items() if phone in told["shares"]}
        answers: Mapping[RequestKind, Document] = {
            "keys": {"cohort": list(sent["keys"].values())},
            "draws": {"draws": self._draws},
            "shares": {"members": sorted(sent["shares"]), "shares": held},
            "list": {"alive": sorted(self.alive), "signatures": self._signatures("members")},
            "agreement": {"signatures": self._signatures("agreement")},
        }
        return answers[kind]

    def _signatures(self, kind: MessageKind) -> dict[str, str]:
        return {phone: message["signature"] for phone, message in self.messages[kind].items()}

    @property
    def _draws(self) -> dict[str, str]:
        return {phone: told["draw"] for phone, told in self.messages["draws"].items()}
