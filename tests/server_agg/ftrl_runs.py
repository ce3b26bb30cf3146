"""Runs of dp-ftrl on a coordinator."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from phonograd.device_runtime.formats.tensor_file import Array
from phonograd.server_agg.rounds.coordinator import Coordinator
from tests.server_agg.coordinators import open_coordinator, send
from tests.server_agg.workshop import Clock, Workshop, settings_with

FTRL: dict[str, Any] = {
    "strategy": "dp-ftrl",
    "planned_rounds": 6,
    "min_separation": 3,
    "max_participations": 2,
    "noise_buffers": 2,
    "noise_multiplier": 1.0,
    "clip_norm": 0.1,
    "delta": 1e-5,
    "deadline_seconds": 100.0,
    "clients_per_round": 2,
}


@contextlib.contextmanager
def serve_ftrl(workshop: Workshop, state: Path, clock: Clock, **changes: object) -> Iterator[Coordinator]:
    with open_coordinator(workshop, state, settings_with(**FTRL | changes), clock) as coordinator:
        yield coordinator


def end_round(coordinator: Coordinator, clock: Clock) -> None:
    """Let the deadline pass."""
    number = coordinator.current.round
    clock.now += 101
    coordinator.tick()
    assert coordinator.current.round == number + 1


def update_of(workshop: Workshop, coordinator: Coordinator, seed: int) -> Path:
    base = coordinator.folder.model(coordinator.current.base_sha256)
    return workshop.update(seed, round=coordinator.current.round, base=base)


def give(workshop: Workshop, coordinator: Coordinator, phone: str) -> None:
    receipt = send(coordinator, update_of(workshop, coordinator, int(phone[-1])), phone)
    assert (receipt.accepted, receipt.round_closed) == (None, False)


def matrix(column: Array) -> Array:
    """The lower triangular Toeplitz matrix with this first column."""
    rounds = len(column)
    return np.array([[column[row - at] if row >= at else 0.0 for at in range(rounds)] for row in range(rounds)])
