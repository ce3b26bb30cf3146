"""What phones say of their screen, doze and battery saver, and what becomes of it."""

import pytest

from phonograd.android_harness.report.table import remarks
from phonograd.android_harness.result import KeptAwake, PowerState
from phonograd.android_harness.session.power_state import parse_power_state
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
    assert parse_power_state(said) == state


def test_power_states_that_could_not_be_changed_get_a_remark() -> None:
    assert list(remarks(phone(power=PowerState(True, None, False)))) == []
    assert list(remarks(phone(power=PowerState(False, True, True)))) == [
        "its screen was off: some phones run slower then",
        "it was in doze: Android defers background work then",
        "battery saver was on: most phones run slower then",
    ]
    (refused,) = remarks(phone(kept_awake=KeptAwake((), ("low_power",))))
    assert refused.startswith("Android refused to change low_power, so it may sleep: in its developer options turn on ")
    (went_off,) = remarks(phone(power_after=PowerState(False, None, None)))
    assert went_off.startswith("its screen went off during the work")
