"""A phone's part of a masked round, from FORMAT.md alone: given the server's answers, the next request."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from phonograd.device_runtime.formats.tensor_file import Array
from tests.reference.masked import (
    Cohort,
    agree,
    derive,
    lines,
    public_of,
    require,
    shares_of,
    stream,
    write_masked,
)

Document = dict[str, Any]


def identity_of(key: Ed25519PrivateKey) -> str:
    return key.public_key().public_bytes_raw().hex()


def certificate_of(vendor: Ed25519PrivateKey, phone: str, identity: str) -> str:
    return vendor.sign(lines("phonograd-phone-1", phone, identity)).hex()


@dataclass
class Opened:
    """What a phone knows of the open round: its number, its model's hash, the settings' text."""

    number: int
    base_sha256: str
    settings: str


@dataclass
class Memory:
    """What a phone keeps from round to round."""

    last_round: int = 0
    bases: set[str] = field(default_factory=set)
    known: dict[str, str] = field(default_factory=dict)

    def begin(self, opened: Opened) -> None:
        """Take part in a new round. Raises UpdateError if the phone may not."""
        require(opened.number > self.last_round, f"a round after {self.last_round} expected, found {opened.number}")
        most = self.last_round + 10**6 if self.last_round else 10**9
        require(opened.number <= most, f"a round up to {most} expected, found {opened.number}")
        require(opened.base_sha256 not in self.bases, "a masked update of this model was sent before")
        self.last_round = opened.number


class Phone:
    """One phone in one round; `next` is what to send: ("keys", body), or ("upload", path); None when it is done.

    values: its grid update. seed: its secrets are drawn from it, so that a test can be repeated. memory: None is a new
    phone's. Raises UpdateError for a round in which it may not take part.
    """

    cohort_kind = Cohort

    def __init__(
        self,
        name: str,
        opened: Opened,
        values: Array,
        folder: Path,
        seed: int = 0,
        vendor: Ed25519PrivateKey | None = None,
        pinned: str | None = None,
        memory: Memory | None = None,
    ):
        self.memory, self.pinned = memory or Memory(), pinned
        self.memory.begin(opened)
        self.name, self.opened, self.values, self.folder = name, opened, values, folder
        self.random = random.Random(f"{name} {seed} {opened.number}")
        self.key = Ed25519PrivateKey.from_private_bytes(self.random.randbytes(32))
        self.identity = identity_of(self.key)
        self.certificate = certificate_of(vendor, name, self.identity) if vendor else ""
        self.cohort = self.cohort_kind(opened.number, opened.base_sha256, opened.settings, pinned)
        self.sealing, self.masking, self.self_mask, self.draw = (self.random.randbytes(32) for _ in range(4))
        self.held: dict[str, tuple[bytes, bytes]] = {}  # by owner: shares of its masking key and of its b
        self.stage = "keys"

    def sign(self, text: bytes) -> str:
        return self.key.sign(text).hex()

    def keys(self) -> Document:
        public = {"phone": self.name, "identity": self.identity, "certificate": self.certificate}
        public |= {"sealing": public_of(self.sealing), "masking": public_of(self.masking)}
        for kind, value in (("self", self.self_mask), ("draw", self.draw)):
            public[kind] = self.cohort.commitment(kind, self.name, self.identity, value.hex())
        return {**public, "signature": self.sign(self.cohort.keys_text(public))}

    def first(self) -> tuple[str, Document]:
        return self._send(self.keys())

    def _send(self, message: Mapping[str, Any]) -> tuple[str, Document]:
        return self.stage, {"round": self.opened.number, **message, "phone": self.name}

    def next(self, reply: Document) -> tuple[str, Document | Path] | None:
        """What follows the answer to the last request; of an upload the answer is {}. Raises UpdateError."""
        then = {
            "keys": "draws",
            "draws": "shares",
            "shares": "members",
            "members": "upload",
            "upload": "list",
            "list": "agreement",
            "agreement": "answer",
        }
        take = getattr(self, f"after_{self.stage}")
        if self.stage == "answer":
            return None
        self.stage = then[self.stage]
        made = take(reply)
        return ("upload", made) if isinstance(made, Path) else self._send(made)

    def after_keys(self, reply: Document) -> Document:
        cohort, settings = self.cohort, self.cohort.settings
        require(settings["min_cohort"] <= len(reply["cohort"]) <= settings["cohort"], "a cohort of another size")
        self.facts = cohort.fix(reply["cohort"])
        require(cohort.keys.get(self.name) == self.keys(), "this phone's own keys were swapped")
        for name, keys in cohort.keys.items() if self.pinned is None else ():
            first = self.memory.known.setdefault(name, keys["identity"])
            require(first == keys["identity"], f"phone {name} has another identity than before")
        return {"draw": self.draw.hex()}

    def after_draws(self, reply: Document) -> Document:
        cohort = self.cohort
        require(reply["draws"].get(self.name) == self.draw.hex(), "this phone's draw was swapped")
        cohort.draws(reply["draws"])
        holders = cohort.holders(self.name)
        secret = self.masking + self.self_mask
        noise = self.random.randbytes(64 * (cohort.t - 1))
        pieces = shares_of(secret, cohort.t, len(holders), noise)
        sealed = {
            holder: self._sealing(self.name, holder, holder).encrypt(bytes(12), bytes([x]) + piece, None).hex()
            for x, (holder, piece) in enumerate(zip(holders, pieces, strict=True), 1)
        }
        self.shares = {"shares": sealed}
        return self.shares

    def _sealing(self, sender: str, holder: str, other: str) -> ChaCha20Poly1305:
        secret = agree(self.sealing, self.cohort.keys[other]["sealing"])
        return ChaCha20Poly1305(derive(secret, self.cohort.id, "phonograd-seal-1", sender, holder))

    def after_shares(self, reply: Document) -> Document:
        cohort = self.cohort
        cohort.members(reply["members"])
        require(self.name in reply["members"], "this phone is no member")
        require(len(reply["members"]) >= cohort.settings["min_cohort"], "too few members")
        for owner, holders in cohort.held.items():
            if self.name in holders and owner != self.name and owner in reply["shares"]:
                self._open(owner, holders.index(self.name) + 1, bytes.fromhex(reply["shares"][owner]))
        return {"signature": self.sign(cohort.members_text())}

    def after_members(self, reply: Document) -> Path:
        cohort = self.cohort
        self.memory.bases.add(self.opened.base_sha256)
        about = cohort.about((len(self.values) - 1) * cohort.settings["support"])
        values = self.values + stream(
            derive(self.self_mask, cohort.id, "phonograd-self-1"), about.width, len(self.values)
        )
        for other in cohort.of_cohort:
            if cohort.are_neighbours(self.name, other):
                values = values + cohort.mask(self.name, other, self.masking, len(self.values), about.width)
        path = self.folder / f"{self.name}-{self.opened.number}.safetensors"
        write_masked(path, values, about.width, self.opened.base_sha256, self.opened.number, cohort.id)
        return path

    def _open(self, owner: str, x: int, sealed: bytes) -> None:
        try:
            piece = self._sealing(owner, self.name, owner).decrypt(bytes(12), sealed, None)
        except InvalidTag:
            return
        if len(piece) == 65 and piece[0] == x:
            self.held[owner] = piece[1:33], piece[33:]

    def after_upload(self, reply: Document) -> Document:
        return {}

    def after_list(self, reply: Document) -> Document:
        require(len(reply["alive"]) >= self.cohort.settings["min_cohort"], "too few are alive")
        self.cohort.list(reply["alive"], reply["signatures"])
        require(self.name in reply["alive"], "this phone is listed dead")
        return {"signature": self.sign(self.cohort.agree_text())}

    def after_agreement(self, reply: Document) -> Document:
        agree = [phone for phone in reply["signatures"] if phone in self.cohort.alive]
        for phone in agree:
            self.cohort.check_agreement(phone, reply["signatures"][phone])
        require(len(agree) >= self.facts.agree, "too few agree on the list")
        told = {owner: pair[owner in self.cohort.alive].hex() for owner, pair in self.held.items()}
        return {"self": self.self_mask.hex(), "shares": told}

    def after_answer(self, reply: Document) -> None:
        return None
