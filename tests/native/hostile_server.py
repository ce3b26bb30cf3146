"""A hostile server of masked rounds: it shows any phone any list at any stage, and keeps all that it gets."""

import copy
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from phonograd.device_runtime.base.errors import TookPartError, UpdateError
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile
from phonograd.device_runtime.masked.phone import certify, new_identity, public_identity
from tests.native.masked_phones import Document, Fleet, NativePhone
from tests.reference.masked import Cohort, unpack
from tests.reference.masked_phone import Memory, Opened, Phone

MOST = 12  # phones
ROUND = {"cohort": MOST, "min_cohort": 3, "curious": 0.2, "dropouts": 0.3, "support": 64}
TAMPERED = ("own keys", "copied draw", "copied self", "wrong share", "other signature", "no signature")
LATER = ("same number", "same model", "other model", "far number")
FAR = 10**18 - 1  # a round's number


@dataclass(frozen=True)
class Split:
    """What two groups of phones are shown in a stage. second: phones of the second group; hidden: what each group is
    not shown.
    """

    second: frozenset[int]
    hidden: tuple[frozenset[int], frozenset[int]]

    def shows(self, phone: int, one: int) -> bool:
        return one not in self.hidden[phone in self.second]


@dataclass(frozen=True)
class Plan:
    """What the server does. Phones are numbers; the first ones work with it.

    tampered: moves beside lists. killed: phones that are opened again before each step. late: those that get no
    signatures in the first round. later: the rounds after it.
    """

    phones: int
    accomplices: int
    cohort: Split
    draws: Split
    members: Split
    alive: Split
    tampered: frozenset[str] = frozenset()
    killed: frozenset[int] = frozenset()
    late: frozenset[int] = frozenset()
    later: tuple[str, ...] = ()


HONEST = Split(frozenset(), (frozenset(), frozenset()))


@st.composite
def plans(draw: Callable[..., Any]) -> Plan:
    """Any plan; half of them aim at one phone, which is shown members that are then called dead."""
    count = draw(st.integers(6, MOST))
    everybody, none = frozenset(range(count)), frozenset[int]()
    few = st.frozensets(st.integers(0, count - 1), max_size=2)
    some = st.frozensets(st.integers(0, count - 1), min_size=2, max_size=4)
    any_lists = st.builds(Split, few, st.tuples(few, few))
    usual = st.sampled_from((True, True, True, False)).flatmap(lambda honest: st.just(HONEST) if honest else any_lists)
    cohort, draws, members, alive = (draw(usual) for _ in range(4))
    if draw(st.booleans()):
        victim = frozenset({draw(st.integers(0, count - 1))})
        shown = draw(some) - victim
        members, alive = Split(victim, (none, everybody - victim - shown)), Split(none, (shown, none))
    return Plan(
        count,
        draw(st.integers(0, int(0.2 * count))),
        *(cohort, draws, members, alive),
        draw(st.just(none) | st.frozensets(st.sampled_from(TAMPERED), max_size=1)),
        draw(few),
        draw(st.just(none) | few),
        draw(st.lists(st.sampled_from(LATER), max_size=2).map(tuple)),
    )


@dataclass
class Upload:
    """A masked update: of which phone and model, under which list, and its values."""

    phone: str
    base: str
    cohort: Cohort
    values: Array


@dataclass
class World:
    """Phones' keys, grid updates and folders, which many servers share. native: which phones are native ones, by
    number; kind, memory: the classes of the others, and of what they keep. A vendor certifies all.
    """

    folder: Path
    native: Callable[[int], bool]
    kind: type[Phone] = Phone
    memory: type[Memory] = Memory
    settings: Mapping[str, Any] = field(default_factory=dict)
    count: int = MOST

    def __post_init__(self) -> None:
        self.names = [f"p{index:02}" for index in range(self.count)]
        self.fleets = [Fleet(self.folder, seed=seed) for seed in (7, 8)]
        for fleet in self.fleets:
            fleet.settings |= {**ROUND, **self.settings}
        self.public = new_identity(self.folder / "vendor.key")
        self.grids = [[fleet.grid(f"{name}-{fleet.seed}", 1) for name in self.names] for fleet in self.fleets]
        self.values = [[self.fleets[0].values(grid) for grid in grids] for grids in self.grids]
        for name in self.names:
            new_identity(self.folder / f"{name}.key")
        self.parameters, self.worlds = self.fleets[0].parameters, itertools.count()

    def certificate(self, name: str, identity: str) -> str:
        """Return the vendor's certificate of a phone's name and identity."""
        return certify(self.folder / "vendor.key", name, identity)

    def begin(self) -> "People":
        """Phones that have never taken part."""
        return People(self, self.folder / f"draw{next(self.worlds)}")


class People:
    """The phones of one draw, over its rounds."""

    def __init__(self, world: World, folder: Path):
        self.world, self.folder = world, folder
        folder.mkdir()
        self.memories = {name: world.memory() for name in world.names}

    def phone(self, index: int, number: int, base: int) -> Any:
        """A phone's part in a round, or its going on with it. Raises UpdateError, TookPartError."""
        world, fleet = self.world, self.world.fleets[base]
        name = world.names[index]
        if world.native(index):
            fleet.number = number
            certificate = world.certificate(name, public_identity(world.folder / f"{name}.key"))
            given = {"state": self.folder / name, "certificate": certificate, "vendor": world.public}
            return fleet.phone(name, world.grids[base][index], **given)
        opened = Opened(number, fleet.base.sha256(), fleet.text)
        values, memory = world.values[base][index], self.memories[name]
        phone = world.kind(name, opened, values, self.folder, index, None, world.public, memory)
        phone.certificate = world.certificate(name, phone.identity)
        return phone


class HostileRound:
    """One round as the plan has it. `sent` are phones' messages by kind; `cohorts`, what each phone was shown."""

    def __init__(self, people: People, plan: Plan, number: int, base: int):
        self.people, self.plan, self.number, self.base = people, plan, number, base
        self.fleet, self.names = people.world.fleets[base], people.world.names[: plan.phones]
        self.helpers: dict[str, Phone] = {}
        self.phones: dict[str, Any] = {}
        self.sent: dict[str, dict[str, Document]] = {kind: {} for kind in ("keys", "draws", "shares", "members")}
        self.sent |= {"agreement": {}, "answer": {}}
        self.cohorts: dict[str, Cohort] = {}
        self.uploads: list[Upload] = []
        self.left: set[str] = set()

    def accomplice(self, name: str) -> Phone:
        """A phone that works with the server, which knows its secrets."""
        opened = Opened(self.number, self.fleet.base.sha256(), self.fleet.text)
        memory = Memory(self.number - 1)
        return Phone(name, opened, self.people.world.values[0][0], self.people.folder, seed=99, memory=memory)

    def run(self) -> "HostileRound":
        """All stages, with those who stay."""
        for index, name in enumerate(self.names):
            if index < self.plan.accomplices:
                self.helpers[name] = helper = self.accomplice(name)
                helper.certificate = self.people.world.certificate(name, helper.identity)
                self.sent["keys"][name] = self.helpers[name].keys()
                continue
            try:
                self.phones[name] = self.people.phone(index, self.number, self.base)
            except (UpdateError, TookPartError):
                continue
            self.take(name, self.phones[name].first())
        for name, phone in self.helpers.items():
            self.sent["draws"][name] = {"draw": phone.draw.hex()}
        steps = (self.cohort, self.draws, self.members, lambda _: {}, lambda _: {}, self.alive, self.signatures)
        for step in (*steps, lambda _: {}):
            for name, reply in [(name, step(name)) for name in self.phones if name not in self.left]:
                self.deliver(name, reply)
        for phone in self.phones.values():
            if isinstance(phone, NativePhone):
                phone.phone.close()
        return self

    def deliver(self, name: str, reply: Document | None) -> None:
        """Give a phone its answer, and keep what it sends then."""
        if reply is None:
            self.left.add(name)
            return
        index, phone = self.names.index(name), self.phones[name]
        if index in self.plan.killed and isinstance(phone, NativePhone):
            phone.phone.close()
            self.phones[name] = phone = self.people.phone(index, self.number, self.base)
            phone.first()
        try:
            self.take(name, phone.next(reply))
        except UpdateError:
            self.left.add(name)

    def take(self, name: str, sent: Any) -> None:
        """Keep a phone's message, or its update."""
        if sent is None:
            self.left.add(name)
        elif sent[0] == "upload":
            with TensorFile(sent[1]) as file:
                about = self.cohorts[name].about(self.people.world.parameters)
                values = unpack(file.read("values"), about.width, about.values)
            self.uploads.append(Upload(name, self.fleet.base.sha256(), self.cohorts[name], values))
        elif sent[0] in self.sent:
            self.sent[sent[0]][name] = {key: one for key, one in sent[1].items() if key != "round"}

    # What the phones are shown.

    def select_names(self, split: Split, name: str, names: Any) -> list[str]:
        """Return those of the names that the plan shows to a phone."""
        index = self.names.index(name)
        return [one for one in sorted(names) if split.shows(index, self.names.index(one))]

    def cohort(self, name: str) -> Document:
        keys = {
            one: dict(self.sent["keys"][one]) for one in self.select_names(self.plan.cohort, name, self.sent["keys"])
        }
        # No more of a cohort work with the server than its settings say.
        for helper in [one for one in keys if one in self.helpers]:
            if len(keys.keys() & self.helpers) > int(self.fleet.settings["curious"] * len(keys)):
                del keys[helper]
        first = next((one for one in keys if one in self.helpers), None)
        copied = self.plan.tampered & {"copied draw", "copied self"}
        for kind in (one.removeprefix("copied ") for one in copied if first in keys and name in keys):
            helper = self.helpers[str(first)]
            keys[str(first)][kind] = keys[name][kind]
            keys[str(first)]["signature"] = helper.sign(helper.cohort.keys_text(keys[str(first)]))
        if "own keys" in self.plan.tampered and name in keys:
            false = self.accomplice(name)
            keys[name]["identity"] = false.identity
            keys[name]["signature"] = false.sign(false.cohort.keys_text(keys[name]))
        return self.follow(name, {"cohort": list(keys.values())}, lambda of: of.fix(keys.values()))

    def draws(self, name: str) -> Document:
        told = {one: message["draw"] for one, message in self.sent["draws"].items() if one in self.cohorts[name].keys}
        draws = {one: told[one] for one in self.select_names(self.plan.draws, name, told)}
        first = next((one for one in draws if one in self.helpers), None)
        if "copied draw" in self.plan.tampered and first in draws and name in draws:
            draws[str(first)] = draws[name]
        return self.follow(name, {"draws": draws}, lambda of: of.draws(draws))

    def members(self, name: str) -> Document:
        cohort = self.cohorts[name]
        members = self.select_names(self.plan.members, name, cohort.numbers)
        sealed = {one: said["shares"][name] for one, said in self.sent["shares"].items() if name in said["shares"]}
        if "wrong share" in self.plan.tampered:
            sealed = dict.fromkeys(sealed, next(iter(sealed.values()), ""))
        return self.follow(name, {"members": members, "shares": sealed}, lambda of: of.members(members))

    def alive(self, name: str) -> Document:
        cohort = self.cohorts[name]
        alive = self.select_names(self.plan.alive, name, cohort.of_cohort)
        signatures = {
            one: self.helpers[one].sign(cohort.members_text())
            if one in self.helpers
            else self.sent["members"].get(one, {"signature": "00" * 64})["signature"]
            for one in cohort.of_cohort
            if one in alive or one in self.sent["members"]
        }
        # It withholds what does not suit it, but for those whom it calls alive.
        signatures = {one: text for one, text in signatures.items() if one in alive}
        if "other signature" in self.plan.tampered:
            signatures = dict.fromkeys(signatures, signatures.get(name, ""))
        if "no signature" in self.plan.tampered:
            signatures = {one: text for one, text in signatures.items() if one == name}
        reply = {"alive": alive, "signatures": signatures}
        return self.follow(name, reply, lambda of: of.list(alive, signatures))

    def signatures(self, name: str) -> Document | None:
        if self.names.index(name) in self.plan.late:
            return None
        cohort = self.cohorts[name]
        found = {one: message["signature"] for one, message in self.sent["agreement"].items()}
        found |= {one: helper.sign(cohort.agree_text()) for one, helper in self.helpers.items()}
        return {"signatures": {one: text for one, text in found.items() if cohort.agrees(one, text)}}

    def follow(self, name: str, reply: Document, fix: Callable[[Cohort], Any]) -> Document:
        """Note what a phone is shown, as long as it is a list at all; the phone says whether it goes on."""
        before = self.cohorts.get(name)
        cohort = self.new_cohort() if before is None else copy.copy(before)
        try:
            fix(cohort)
        except UpdateError:
            return reply
        self.cohorts[name] = cohort
        return reply

    def new_cohort(self) -> Cohort:
        kind = self.people.world.kind.cohort_kind
        cohort = kind(self.number, self.fleet.base.sha256(), self.fleet.text, self.people.world.public)
        cohort.about(self.people.world.parameters)
        return cohort


class Isolating(HostileRound):
    """The known attack: one phone is shown other members than all others, and masks with nobody else, or with phones
    that the others are told are dead. dead: how many; 0: with nobody, where phones are not all neighbours.
    """

    def __init__(self, people: People, plan: Plan, victim: str, dead: int):
        super().__init__(people, plan, 1, 0)
        self.victim, self.count = victim, dead

    @property
    def dead(self) -> list[str]:
        cohort = self.cohorts[self.victim]
        return [one for one in sorted(cohort.numbers) if cohort.are_neighbours(self.victim, one)][: self.count]

    def select_names(self, split: Split, name: str, names: Any) -> list[str]:
        cohort = self.cohorts.get(name)
        if split is self.plan.members and name == self.victim and cohort is not None:
            return [one for one in sorted(names) if one in self.dead or not cohort.are_neighbours(name, one)]
        if split is self.plan.alive:
            return [one for one in sorted({*names, self.victim}) if one not in self.dead]
        return super().select_names(split, name, names)


def run(people: People, plan: Plan) -> list[HostileRound]:
    """The plan's rounds. Those after the first one have one phone less, and are otherwise honest."""
    rounds, number = [HostileRound(people, plan, 1, 0).run()], 1
    then = replace(plan, phones=plan.phones - 1, cohort=HONEST, draws=HONEST, members=HONEST, alive=HONEST)
    then = replace(then, tampered=frozenset(), late=frozenset())
    for later in plan.later:
        number += later != "same number"
        base = int(later in ("other model", "far number"))
        rounds.append(HostileRound(people, then, FAR if later == "far number" else number, base).run())
    return rounds
