"""A server that starts with other settings than the last round has."""

import logging
from pathlib import Path

import pytest
from msgspec import structs

from phonograd.device_runtime.base.errors import UsageError
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.settings.masked import MaskedSettings
from tests.server_agg.coordinators import open_coordinator, send
from tests.server_agg.private_runs import PRIVATE
from tests.server_agg.workshop import Workshop, settings_with

MASKED = MaskedSettings(cohort=3, min_cohort=3)
NOISY = structs.replace(MASKED, distributed_noise=1.0)
OF_THREE = {"clients_per_round": 3, "weighting": "equal"}


@pytest.mark.parametrize(
    ("last", "now", "lost"),
    [
        (PRIVATE, {}, "noise"),
        (PRIVATE | {"epsilon_budget": 100.0}, PRIVATE, "epsilon budget"),
        (PRIVATE, PRIVATE | {"noise_multiplier": 0.0}, "noise"),
        (OF_THREE | {"masked": NOISY}, OF_THREE | {"masked": MASKED}, "noise"),
        (OF_THREE | {"masked": NOISY}, OF_THREE, "noise and no masks"),
        (OF_THREE | {"masked": MASKED}, OF_THREE, "masks"),
        (OF_THREE | {"masked": MASKED}, PRIVATE, "masks"),
    ],
)
def test_what_hides_phones_ends_on_purpose_alone(
    last: dict[str, object], now: dict[str, object], lost: str, workshop: Workshop, state: Path
) -> None:
    with open_coordinator(workshop, state, settings_with(**last)) as coordinator:
        before = coordinator.current
    with pytest.raises(UsageError, match=f"rounds with these settings have no {lost}, which round 1 has.*end_privacy"):
        Coordinator(workshop.artifacts, state, settings_with(**now))
    with open_coordinator(workshop, state, settings_with(**last)) as coordinator:
        assert (coordinator.current.strategy, coordinator.current.masked) == (before.strategy, before.masked)
    for more in ({"end_privacy": True}, {}):
        with open_coordinator(workshop, state, settings_with(**now, **more)) as coordinator:
            assert coordinator.settings.strategy.strategy == coordinator.current.strategy


@pytest.mark.parametrize(
    ("last", "now"),
    [(PRIVATE, PRIVATE | {"noise_multiplier": 2.0}), (OF_THREE, OF_THREE | {"masked": MASKED}), ({}, PRIVATE)],
)
def test_other_noise_and_more_masks_are_fine(
    last: dict[str, object], now: dict[str, object], workshop: Workshop, state: Path
) -> None:
    for settings in (last, now):
        with open_coordinator(workshop, state, settings_with(**settings)):
            pass


def test_says_what_changes_and_from_when(workshop: Workshop, state: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    five = settings_with(clients_per_round=5)
    with open_coordinator(workshop, state, five):
        pass
    with open_coordinator(workshop, state, five):
        assert caplog.messages == []
    changed = settings_with(clients_per_round=2, strategy="median", deadline_seconds=60.0)
    with open_coordinator(workshop, state, changed) as coordinator:
        send(coordinator, workshop.update(1), "phone1")
    told = "strategy: fedavg -> median, clients per round: 5 -> 2, deadline seconds: None -> 60.0"
    assert caplog.messages == [f"round 1: settings changed: {told}"]
    with open_coordinator(workshop, state, five) as coordinator:
        assert coordinator.current.clients_per_round == 2
        assert send(coordinator, workshop.update(2), "phone2").round_closed
        assert coordinator.current.clients_per_round == 5
    assert caplog.messages[1].startswith(
        "round 1 already has updates and keeps its settings until it closes; then: strategy: median -> fedavg, clients"
    )
