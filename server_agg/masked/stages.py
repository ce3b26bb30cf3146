"""The stages of a masked round, one class each: whom it waits for, what they send, when it ends, what it fixes.

Gathering -> Drawing -> Sharing -> Uploading -> Agreeing -> Answering -> Over. What one fixes is never fixed again: a
stage that has ended takes no message, and after a restart the same messages lead to the same stage.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, get_args

from phonograd.device_runtime.base.errors import UpdateError
from phonograd.device_runtime.masked.cohort import Fixed, MaskedCohort
from phonograd.server_agg.settings.masked import MaskedSettings
from phonograd.server_agg.storage.cohorts import Messages
from phonograd.server_agg.storage.tables import MessageKind, StageName

KEYS = ("identity", "sealing", "masking")  # no two phones may have the same
ORDER: tuple[StageName, ...] = get_args(StageName)


@dataclass
class Facts:
    """What the stages of a cohort share. messages: those that were accepted, by kind and phone.

    early: whether gathering ends with the last phone that has room, before the round's deadline. alive: phones whose
    update was accepted.
    """

    settings: MaskedSettings
    early: bool
    cohort: MaskedCohort
    messages: Mapping[MessageKind, Messages]
    alive: set[str] = field(default_factory=set)


class Stage:
    """A stage that has begun. kind: of the messages that it takes; least: phones without whom the round fails."""

    name: ClassVar[StageName]
    kind: ClassVar[MessageKind | None] = None

    def __init__(self, facts: Facts, fixed: Fixed | None = None):
        self.facts = facts
        self.fixed = fixed

    @property
    def invited(self) -> Collection[str] | None:
        """The phones that it waits for; None: whoever comes."""
        raise NotImplementedError

    @property
    def awaited(self) -> Collection[str] | None:
        """Of the invited, those without whom it does not end before its time."""
        return self.invited

    @property
    def through(self) -> Collection[str]:
        """The phones that are through with it."""
        return self.facts.messages[self.kind] if self.kind else ()

    @property
    def least(self) -> int:
        """Phones that must get through, or the round fails."""
        return self.facts.settings.min_cohort

    def check(self, phone: str, message: Mapping[str, Any]) -> None:
        """Check an invited phone's message. Raises UpdateError."""

    def ended(self, now: float, since: float, closes_at: float | None) -> bool:
        """Whether all are through, or its time is over. closes_at: the round's deadline."""
        del closes_at
        through = self.through
        return now >= since + self.facts.settings.stage_seconds or all(one in through for one in self.awaited or ())

    def following(self) -> "Stage":
        """Fix what it was for; the next stage. Raises UpdateError if that can't be fixed."""
        raise NotImplementedError


class Gathering(Stage):
    """Phones that have an update send their keys, until the cohort is full or the round's deadline has passed."""

    name, kind = "gathering", "keys"

    @property
    def invited(self) -> None:
        """Whoever comes."""
        return None

    def check(self, phone: str, message: Mapping[str, Any]) -> None:
        """Signature and certificate, and no key that another phone has."""
        self.facts.cohort.check_keys(message)
        keys = [message[name] for name in KEYS]
        taken = {other[name] for other in self.facts.messages["keys"].values() for name in KEYS}
        if len(set(keys)) < len(KEYS) or not taken.isdisjoint(keys):
            raise UpdateError(f"phone {phone}: keys of its own expected, found one that comes twice; draw new ones")

    def ended(self, now: float, since: float, closes_at: float | None) -> bool:
        """The cohort is full, or the deadline has passed and it is large enough."""
        del since
        phones, settings = len(self.through), self.facts.settings
        full = self.facts.early and phones >= settings.cohort
        return full or (closes_at is not None and now >= closes_at and phones >= settings.min_cohort)

    def following(self) -> Stage:
        """The cohort is fixed."""
        return Drawing(self.facts, self.facts.cohort.fix(self.facts.messages["keys"].values()))


class Drawing(Stage):
    """Each phone of the cohort tells its draw, which nobody could know when the cohort was fixed."""

    name, kind = "drawing", "draws"

    @property
    def invited(self) -> Collection[str]:
        """The cohort."""
        return self.facts.messages["keys"]

    def check(self, phone: str, message: Mapping[str, Any]) -> None:
        """That it is the draw that its keys announced."""
        self.facts.cohort.check_draw(phone, message)

    def following(self) -> Stage:
        """It is fixed who is whose neighbour."""
        self.facts.cohort.draws({phone: one["draw"] for phone, one in self.facts.messages["draws"].items()})
        return Sharing(self.facts, self.fixed)


class Sharing(Stage):
    """Each phone sends the shares of its secrets, sealed for its neighbours."""

    name, kind = "sharing", "shares"

    @property
    def invited(self) -> Collection[str]:
        """Those that told their draws."""
        return self.facts.messages["draws"]

    def check(self, phone: str, message: Mapping[str, Any]) -> None:
        """Whom the shares are for."""
        self.facts.cohort.check_shares(phone, message)

    def following(self) -> Stage:
        """The members are fixed."""
        self.facts.cohort.members(self.facts.messages["shares"])
        return Uploading(self.facts, self.fixed)


class OfMembers(Stage):
    """A stage of the phones that have sent shares."""

    @property
    def invited(self) -> Collection[str]:
        """The members."""
        return self.facts.messages["shares"]


class Uploading(OfMembers):
    """The members send their masked updates."""

    name = "uploading"

    @property
    def through(self) -> Collection[str]:
        """Those whose update was accepted."""
        return self.facts.alive

    def following(self) -> Stage:
        """The list of those that are alive is fixed."""
        self.facts.cohort.list(self.facts.alive)
        return Agreeing(self.facts, self.fixed)


class Agreeing(OfMembers):
    """Members sign the list of those that are alive, so that nobody is shown another one."""

    name, kind = "agreeing", "agreement"

    @property
    def awaited(self) -> Collection[str]:
        """The dead rarely come."""
        return self.facts.alive

    @property
    def least(self) -> int:
        """T."""
        assert self.fixed is not None
        return self.fixed.agree

    def check(self, phone: str, message: Mapping[str, Any]) -> None:
        """The signature."""
        self.facts.cohort.check_agreement(phone, message["signature"])

    def following(self) -> Stage:
        """The signatures are what phones are shown before they answer."""
        return Answering(self.facts, self.fixed)


class Answering(OfMembers):
    """Members send their self masks, and the shares that they hold: of the alive's self masks, of the dead's keys."""

    name, kind = "answering", "answer"

    @property
    def least(self) -> int:
        """Whether the secrets can be put together is seen when they are."""
        return 1

    @property
    def awaited(self) -> Collection[str]:
        """Those that have seen and signed the list."""
        return self.facts.messages["agreement"]

    def check(self, phone: str, message: Mapping[str, Any]) -> None:
        """As far as one answer alone shows."""
        self.facts.cohort.check_answer(phone, message)

    def following(self) -> Stage:
        """All is there for the sum."""
        return Over(self.facts, self.fixed)


class Over(OfMembers):
    """The sum can be unmasked."""

    name = "over"

    def ended(self, now: float, since: float, closes_at: float | None) -> bool:
        """Nothing follows."""
        del now, since, closes_at
        return False
