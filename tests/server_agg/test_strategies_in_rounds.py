"""Strategies in rounds: a crash in mid-round, on copies of one state, changes no bit of the models."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from phonograd.device_runtime.formats.tensor_file import load_tensors
from phonograd.server_agg.rounds.coordinator import Coordinator
from tests.server_agg.coordinators import open_coordinator, send
from tests.server_agg.workshop import Workshop, settings_with

PHONES = range(1, 8)


def send_round(workshop: Workshop, coordinator: Coordinator, phones: list[int]) -> str:
    """Updates of these phones to the open round; the base model after them."""
    number, base = coordinator.current.round, coordinator.folder.model(coordinator.current.base_sha256)
    for phone in phones:
        send(coordinator, workshop.update(phone, round=number, tokens=100 * phone, base=base), f"phone{phone}")
    return coordinator.current.base_sha256


@pytest.mark.parametrize(
    "changes",
    [
        {"strategy": "fedavg", "server_optimizer": "momentum"},
        {"strategy": "fedatt", "attention_noise": 0.01, "attention_norm": "inf"},
        {"strategy": "multi-krum", "krum_byzantine": 2, "server_optimizer": "adam"},
    ],
    ids=lambda changes: changes["strategy"],
)
def test_two_rounds_with_a_crash_are_two_rounds(changes: dict[str, object], workshop: Workshop, tmp_path: Path) -> None:
    settings = settings_with(clients_per_round=7, **changes)
    with open_coordinator(workshop, tmp_path / "whole", settings) as coordinator:
        send_round(workshop, coordinator, [5, 1, 3])
        shutil.copytree(tmp_path / "whole", tmp_path / "crashed")  # what a power cut would leave
        first = send_round(workshop, coordinator, [2, 4, 6, 7])
        assert first != workshop.base_sha256
        shutil.copytree(tmp_path / "whole", tmp_path / "later")
        second = send_round(workshop, coordinator, list(PHONES))
    # Settings given at the restart do not change a round that has updates.
    with open_coordinator(workshop, tmp_path / "crashed", settings_with(clients_per_round=7)) as coordinator:
        assert send_round(workshop, coordinator, [7, 6, 4, 2]) == first
    with open_coordinator(workshop, tmp_path / "later", settings) as coordinator:
        after = send_round(workshop, coordinator, list(reversed(PHONES)))
        assert (after == second) and second != first


def test_a_rollback_goes_back_to_the_optimisers_state_of_its_model(workshop: Workshop, tmp_path: Path) -> None:
    settings = settings_with(clients_per_round=1, server_optimizer="momentum")
    with open_coordinator(workshop, tmp_path / "state", settings) as coordinator:
        first = coordinator.folder.model(str(send(coordinator, workshop.update(1), "a").model_sha256))
        update = workshop.update(2, round=2, base=first)
        second = load_tensors(coordinator.folder.model(str(send(coordinator, update, "a").model_sha256)))
        coordinator.rollback(1)
        again = load_tensors(coordinator.folder.model(str(send(coordinator, update, "b").model_sha256)))
    assert {name: array.tobytes() for name, array in again.items()} == {
        name: array.tobytes() for name, array in second.items()
    }
    base, made, trained = load_tensors(workshop.base_path), load_tensors(first), workshop.trained(2, base=first)
    for name, array in second.items():  # and that state was used: momentum 0.9 of the first round's step
        expected = trained[name] + 0.9 * (made[name] - base[name])
        assert np.allclose(array, expected, rtol=0, atol=1e-5)
