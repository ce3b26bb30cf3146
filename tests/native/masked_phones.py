"""Native phones of masked rounds for tests, driven like those of tests/reference."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, save_tensors
from phonograd.device_runtime.masked.cohort import MaskedCohort, MaskedSum
from phonograd.device_runtime.masked.phone import MaskedPhone, PhoneMasking, new_identity
from phonograd.device_runtime.update.update_file import UpdateInfo, write_update
from tests.reference.masked_phone import Opened, Phone

Document = dict[str, Any]
Sent = tuple[str, Document | Path] | None
SHAPES = {"embedding.weight": (70, 61), "decoder.bias": (19,)}
SETTINGS = {
    "bits": 8, "support": 1, "clip": 0.5, "weight_cap": 1, "cohort": 64, "min_cohort": 3,
    "curious": 0.1, "dropouts": 0.3, "steps": 0, "noise": 0,
}  # fmt: skip


@dataclass
class Fleet:
    """A base model, the settings' text, and a folder for each phone. seed: of the model."""

    folder: Path
    settings: Document = field(default_factory=lambda: dict(SETTINGS))
    number: int = 1
    seed: int = 7

    def __post_init__(self) -> None:
        random = np.random.default_rng(self.seed)
        path = self.folder / f"base-{self.seed}.safetensors"
        if not path.exists():
            save_tensors(path, {name: random.standard_normal(shape, "f4") for name, shape in SHAPES.items()})
        self.base = TensorFile(path)

    @property
    def text(self) -> str:
        return json.dumps(self.settings)

    @property
    def parameters(self) -> int:
        return sum(spec.elements for spec in self.base.specs.values())

    def delta(self, seed: int, norm: float = 0.1) -> dict[str, Array]:
        """Moves a phone that learned something."""
        random = np.random.default_rng(seed)
        drawn = {name: random.standard_normal(shape, "f4") for name, shape in SHAPES.items()}
        scale = norm / np.sqrt(sum(float((one**2).sum()) for one in drawn.values()))
        return {name: (one * scale).astype("f4") for name, one in drawn.items()}

    def grid(self, name: str, seed: int, tokens: int = 100, norm: float = 0.1) -> Path:
        """A phone's grid update."""
        path = self.folder / f"{name}.grid"
        trained = {key: self.base.read(key) + moved for key, moved in self.delta(seed, norm).items()}
        info = UpdateInfo(self.base.sha256(), 1, tokens, "rows-f32", 0)
        write_update(path, self.base, trained, info, self.text)
        return path

    def values(self, grid: Path) -> Array:
        """What a phone's update adds to the sum, int64, the weight last."""
        with TensorFile(grid) as file:
            weight = min(int(file.metadata["tokens"]), self.settings["weight_cap"])
            return np.append(file.read("codes").astype(np.int64) * weight, weight)

    def phone(self, name: str, grid: Path, **given: Any) -> "NativePhone":
        key = self.folder / f"{name}.key"
        if not key.exists():
            new_identity(key)
        chosen = {"min_cohort": 3, "state": self.folder / f"{name}.state", **given}
        return NativePhone(MaskedPhone(PhoneMasking(identity=key, **chosen), name, grid, self.number))


@dataclass
class NativePhone:
    """Drives a phone: what it sends, as the reference's phones say it."""

    phone: MaskedPhone

    def first(self) -> Sent:
        request = self.phone.request()
        if request.action == "done":
            return None
        if request.action == "upload":
            return "upload", request.file
        return request.path.rpartition("/")[2], json.loads(request.body)

    def next(self, reply: Document) -> Sent:
        uploaded = self.phone.request().action == "upload"
        self.phone.take(None if uploaded else json.dumps(reply))
        return self.first()


def message(sent: Sent, stage: str) -> Document:
    """The message of that stage, without what every message has."""
    assert sent is not None and sent[0] == stage, sent
    assert isinstance(sent[1], dict)
    return {key: value for key, value in sent[1].items() if key != "round" and (stage == "keys" or key != "phone")}


def shares_for(name: str, shares: Mapping[str, Document]) -> dict[str, str]:
    """The shares addressed to a phone, by sender."""
    return {sender: one["shares"][name] for sender, one in shares.items() if name in one["shares"]}


def of_all(phones: Mapping[str, Any], replies: Mapping[str, Document] | Document) -> dict[str, Sent]:
    """What each phone sends after its reply; the same one for all unless there is one by name."""
    by_name = isinstance(replies, dict) and set(phones) <= set(replies)
    return {name: phone.next(replies[name] if by_name else replies) for name, phone in phones.items()}


def without(phones: dict[str, Any], names: Sequence[str]) -> None:
    for name in names:
        phones.pop(name, None)


def mix_phones(fleet: Fleet, count: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Phones, every other one of them the reference's, and each one's values."""
    phones: dict[str, Any] = {}
    values = {}
    opened = Opened(fleet.number, fleet.base.sha256(), fleet.text)
    for index in range(count):
        name = f"p{index:03}"
        grid = fleet.grid(name, index, tokens=40 * (index + 1))
        values[name] = fleet.values(grid)
        native = index % 2 == 0
        phones[name] = fleet.phone(name, grid) if native else Phone(name, opened, values[name], fleet.folder)
    return phones, values


def open_cohort(kind: Callable[..., Any], fleet: Fleet, vendor: str | None = None) -> Any:
    return kind(fleet.number, fleet.base.sha256(), fleet.text, vendor)


def until_shares(phones: dict[str, Any]) -> tuple[list[Document], dict[str, str], dict[str, Document]]:
    """All phones up to their shares; keys, draws and shares."""
    keys = [message(phone.first(), "keys") for phone in phones.values()]
    draws = {name: message(sent, "draws")["draw"] for name, sent in of_all(phones, {"cohort": keys}).items()}
    shares = {name: message(sent, "shares") for name, sent in of_all(phones, {"draws": draws}).items()}
    return keys, draws, shares


@dataclass
class Sharing:
    """What phones sent up to their updates."""

    keys: list[Document]
    draws: dict[str, str]
    shares: dict[str, Document]
    files: dict[str, Path] = field(default_factory=dict)
    signatures: dict[str, str] = field(default_factory=dict)  # of the members

    def answer_list(self, alive: Sequence[str]) -> Document:
        """The answer that names those who are alive."""
        return {"alive": list(alive), "signatures": self.signatures}

    def cohort(self, kind: Callable[..., Any], fleet: Fleet) -> Any:
        """A cohort that has come as far."""
        cohort = open_cohort(kind, fleet)
        cohort.about(fleet.parameters)
        cohort.fix(self.keys)
        for name, draw in self.draws.items():
            cohort.check_draw(name, {"draw": draw})
        cohort.draws(self.draws)
        for name, sent in self.shares.items():
            cohort.check_shares(name, sent)
        cohort.members(sorted(self.shares))
        return cohort


def until_list(phones: dict[str, Any]) -> Sharing:
    """All phones up to their request for the list."""
    found = Sharing(*until_shares(phones))
    shares = found.shares
    replies = {name: {"members": sorted(shares), "shares": shares_for(name, shares)} for name in phones}
    found.signatures = sign_members(phones, replies)
    found.files = {name: sent[1] for name, sent in of_all(phones, {}).items() if sent is not None}
    of_all(phones, {})
    return found


def sign_members(phones: Mapping[str, Any], replies: Mapping[str, Document]) -> dict[str, str]:
    """Tell phones who the members are; their signatures of that."""
    return {name: message(sent, "members")["signature"] for name, sent in of_all(phones, replies).items()}


def collect_answers(fleet: Fleet, phones: dict[str, Any], dead: str = "") -> tuple[Any, Any, dict[str, Document]]:
    """A cohort and sum before unmasking, and the answers."""
    found = until_list(phones)
    cohort = found.cohort(MaskedCohort, fleet)
    about = cohort.about(fleet.parameters)
    total = MaskedSum(about.values, about.width)
    without(phones, list(dead))
    alive = sorted(phones)
    for name in alive:
        total.add(cohort, found.files[name])
    cohort.list(alive, found.signatures)
    sent = of_all(phones, found.answer_list(alive))
    signatures = {name: message(one, "agreement")["signature"] for name, one in sent.items()}
    return (
        cohort,
        total,
        {name: message(one, "answer") for name, one in of_all(phones, {"signatures": signatures}).items()},
    )
