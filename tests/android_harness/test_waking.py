"""What phones say of their screen, doze and battery saver, and what becomes of it."""

import pytest

from phonograd.android_harness.report.names import power_in_words
from phonograd.android_harness.report.table import remarks
from phonograd.android_harness.result import PowerState
from phonograd.android_harness.session.waking import parse_power
from tests.android_harness.reports import phone


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ("  mWakefulness=Awake\ndoze ACTIVE ACTIVE\nsaver 0", PowerState(True, False, False)),
        ("mWakefulness=Dreaming\ndoze INACTIVE IDLE_MAINTENANCE\nsaver 1", PowerState(False, True, True)),
        ("mWakefulness=Dozing\ndoze IDLE_PENDING OVERRIDE\nsaver null", PowerState(False, False, False)),
        ("doze IDLE \nsaver ", PowerState(None, True, None)),
        ("doze Unknown command: get\nsaver Failure calling service settings", PowerState(None, None, None)),
        ("", PowerState(None, None, None)),
    ],
)
def test_states_of_real_androids(said: str, state: PowerState) -> None:
    assert parse_power(said) == state


def test_what_could_not_be_held_off_is_remarked() -> None:
    assert list(remarks(phone(power=PowerState(True, None, False)))) == []
    assert list(remarks(phone(power=PowerState(False, True, True)))) == [
        "its screen was off: some phones run slower then",
        "it dozed: Android holds background work back then",
        "battery saver was on: most phones run slower then",
    ]


def test_a_state_in_words_leaves_out_what_the_phone_does_not_say() -> None:
    assert power_in_words(PowerState(True, False, False)) == "screen on, no doze, battery saver off"
    assert power_in_words(PowerState(False, None, True)) == "screen off, battery saver on"
