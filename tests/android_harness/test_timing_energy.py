"""Joules of an epoch from what a battery tells, and none where it cannot be known."""

from collections.abc import Callable
from typing import Any

import pytest

from phonograd.android_harness.phones.facts import Power
from phonograd.android_harness.result import Sample, Step
from phonograd.android_harness.timing.energy import epoch_energy
from tests.android_harness.fake_session import sample_at

STEPS = tuple(Step(10.0 + 10 * number, 10.0, 5.0, {}) for number in range(1, 7))  # from second 10 to 70
SECONDS = 60.0


def samples_of(power: Callable[[float], Power]) -> list[Sample]:
    """A sample every 5 seconds, from long before the steps to long after."""
    return [sample_at(float(at), power=power(at)) for at in range(-60, 140, 5)]


def watts_of(power: Callable[[float], Power]) -> Any:
    found = epoch_energy(STEPS, samples_of(power), SECONDS)
    assert found is not None
    assert found.joules == pytest.approx(found.watts * SECONDS)
    return (pytest.approx(found.watts), found.basis)


@pytest.mark.parametrize("current", [-500_000, 500_000, -500, 500], ids=lambda current: f"{current:+}")
def test_power_is_current_times_voltage_for_any_sign_and_unit(current: int) -> None:
    """Outside of the steps it draws ten times as much, which is no part of the epoch."""

    def power(at: float) -> Power:
        return Power(current if 10 <= at <= 70 else 10 * current, 4_000_000, None, False)

    assert watts_of(power) == (2.0, "current")


def test_power_that_changes_is_averaged_over_time() -> None:
    assert watts_of(lambda at: Power(-1_000_000 if at < 40 else 0, 4_000_000, None, False))[0] == pytest.approx(
        4.0 * 27.5 / 60
    )


@pytest.mark.parametrize("unit", [1, 1000], ids=["uAh", "mAh"])
def test_a_charge_counter_tells_between_its_changes(unit: int) -> None:
    """The counter moves every 20 seconds, by 10 mAh: 1.8 A."""

    def power(at: float) -> Power:
        return Power(None, 4_000_000, (3_000_000 - 10_000 * (int(at) // 20)) // unit, False)

    assert watts_of(power) == (7.2, "charge counter")


@pytest.mark.parametrize(
    "power",
    [
        Power(-500_000, 4_000_000, 3_000_000, True),
        Power(-500_000, 4_000_000, 3_000_000, None),
        Power(-500_000, None, 3_000_000, False),
        Power(None, 4_000_000, 3_000_000, False),
        Power(0, 4_000_000, None, False),
        Power(None, None, None, False),
    ],
    ids=["charges", "does not say whether", "no voltage", "a counter that stands", "no current", "nothing"],
)
def test_without_voltage_or_current_there_is_no_energy(power: Power) -> None:
    assert epoch_energy(STEPS, samples_of(lambda _: power), SECONDS) is None


def test_external_power_for_a_moment_makes_the_energy_unknown() -> None:
    assert epoch_energy(STEPS, samples_of(lambda at: Power(-500_000, 4_000_000, None, at == 40)), SECONDS) is None


def test_too_few_samples_are_no_evidence() -> None:
    samples = [sample_at(at, power=Power(-500_000, 4_000_000, None, False)) for at in (20.0, 60.0)]
    assert epoch_energy(STEPS, samples, SECONDS) is None
    assert epoch_energy((), samples, SECONDS) is None
