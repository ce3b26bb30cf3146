"""A fleet of reference phones at a server's coordinator, and the plain sum that theirs must equal."""

import random
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, load_tensors
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.settings.masked import MaskedSettings
from phonograd.server_agg.settings.server import ServerSettings
from tests.reference.masked import Cohort
from tests.reference.masked_phone import Opened, Phone
from tests.server_agg.coordinators import send
from tests.server_agg.workshop import Clock, Workshop, settings_with

STAGE_SECONDS = 60.0
STAGES = ("keys", "draws", "shares", "members", "upload", "list", "agreement", "answer")


def masked_settings(
    phones: int, least: int | None = None, masked: Mapping[str, Any] = {}, **more: Any
) -> ServerSettings:
    """A server's; a round takes `phones`, and fails with fewer than `least`, or than 7 of 10."""
    of_masked = {"support": 64, "stage_seconds": STAGE_SECONDS, "cohort": phones, **masked}
    made = MaskedSettings(min_cohort=least or max(3, phones - int(0.3 * phones)), **of_masked)
    return settings_with(**{"clients_per_round": phones, "weighting": made.weighting, "masked": made} | more)


def parameters_of(workshop: Workshop) -> int:
    with TensorFile(workshop.base_path) as base:
        return sum(spec.elements for spec in base.specs.values())


class Fleet:
    """Phones of the open round. `deliver` sends a phone's next request; True: it was answered, and has the next one."""

    def __init__(
        self,
        coordinator: Coordinator,
        workshop: Workshop,
        phones: int,
        seed: int = 0,
        vendor: Ed25519PrivateKey | None = None,
        tokens: int = 100,
    ):
        self.coordinator, self.number = coordinator, coordinator.current.round
        assert coordinator.current.masked is not None
        opened = Opened(self.number, coordinator.current.base_sha256, coordinator.current.masked)
        cohort, numbers = Cohort(opened.number, opened.base_sha256, opened.settings), np.random.default_rng(seed)
        cohort.about(parameters_of(workshop))
        assert cohort.grid is not None
        self.grid = cohort.grid
        pinned = None if vendor is None else vendor.public_key().public_bytes_raw().hex()
        self.phones: dict[str, Phone] = {}
        self.requests: dict[str, Any] = {}
        for one in range(phones):
            deltas = (0.1 * numbers.standard_normal(parameters_of(workshop))).astype(np.float32)
            values = self.grid.encode(deltas, tokens + one, numbers)
            phone = Phone(f"phone{one}", opened, values, workshop.folder, seed, vendor, pinned)
            self.phones[phone.name], self.requests[phone.name] = phone, phone.first()

    def deliver(self, name: str) -> bool:
        kind, body = self.requests[name]
        reply = self.send(name, kind, body)
        if reply is None:
            return False
        self.requests[name] = self.phones[name].next(dict(reply))
        return True

    def send(self, name: str, kind: str, body: Any) -> Mapping[str, Any] | None:
        if kind == "upload":
            send(self.coordinator, body, name)
            return {}
        message = {key: value for key, value in body.items() if key != "round" and (kind == "keys" or key != "phone")}
        return self.coordinator.masked_message(kind, name, body["round"], message)

    def to(self, stage: str, names: Collection[str] | None = None) -> None:
        """Deliver until all (of `names`) have the request of a stage to send."""
        for _ in range(3 * len(STAGES)):
            for name in names or list(self.phones):
                if self.requests[name] is not None and STAGES.index(self.requests[name][0]) < STAGES.index(stage):
                    self.deliver(name)

    def run(self, dropped: Mapping[str, str], order: random.Random, clock: Clock) -> None:
        """Phones come in any order, and go on until the round is over. dropped: before which stage one is lost."""
        left = set(self.phones)
        while self.coordinator.current.round == self.number:
            left = {one for one in left if self.requests[one] and self.requests[one][0] != dropped.get(one)}
            turn = sorted(left)
            order.shuffle(turn)
            moved = [self.deliver(name) for name in turn]
            if not any(moved):  # all wait for those that were lost
                clock.now += STAGE_SECONDS + 1
            self.coordinator.tick()

    def sum_of(self, names: Collection[str]) -> Array:
        return sum((self.phones[name].values for name in names), np.zeros(self.grid.values, np.int64))

    def model_of(self, names: Collection[str], base: Path) -> dict[str, Array]:
        """The model after the plain sum of these phones."""
        total = self.sum_of(names)
        deltas, at, made = self.grid.decode(total[:-1].astype(np.float64), float(total[-1])), 0, {}
        for name, old in load_tensors(base).items():
            delta = deltas[at : at + old.size].reshape(old.shape).astype(np.float64)
            made[name], at = np.where(delta != 0, old + delta, old).astype(np.float32), at + old.size
        return made
