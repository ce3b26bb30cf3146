"""Rounds of dp-fedavg on a coordinator."""

import contextlib
from pathlib import Path

from sqlalchemy import select

from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.security.registry import PhoneRegistry
from phonograd.server_agg.storage.tables import Selected
from tests.server_agg.coordinators import open_coordinator
from tests.server_agg.workshop import Clock, Workshop, settings_with

NOISE = 0.2  # so little that PLD, which is slow, has no part in the accounts
PRIVATE: dict[str, object] = {
    "strategy": "dp-fedavg",
    "sampling": 0.5,
    "noise_multiplier": NOISE,
    "clip_norm": 0.1,
    "delta": 1e-5,
    "deadline_seconds": 100.0,
}
ENDLESS = PRIVATE | {"deadline_seconds": 1e9}
PHONES = tuple(f"phone{number}" for number in range(12))


def private_coordinator(
    workshop: Workshop, state: Path, clock: Clock, **changes: object
) -> contextlib.AbstractContextManager[Coordinator]:
    return open_coordinator(workshop, state, settings_with(**PRIVATE | changes), clock)


def end_round(coordinator: Coordinator, clock: Clock) -> None:
    """Let the deadline pass."""
    clock.now += 101
    coordinator.tick()


def enrol(coordinator: Coordinator) -> None:
    for name in PHONES:
        PhoneRegistry(coordinator.ledger).add(name, "phone", "90d", "test")
    coordinator.tick()


def drawn_phones(coordinator: Coordinator) -> set[str]:
    with coordinator.ledger.reading() as session:
        return set(session.scalars(select(Selected.phone).where(Selected.round == coordinator.current.round)))


def update_of(workshop: Workshop, coordinator: Coordinator, phone: str) -> Path:
    base = coordinator.folder.model(coordinator.current.base_sha256)
    return workshop.update(PHONES.index(phone), round=coordinator.current.round, base=base)
