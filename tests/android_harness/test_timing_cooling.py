"""Waiting for a phone to cool: when it ends, and when it is given up."""

from typing import Any

import pytest

from phonograd.android_harness.errors import NoPhoneError
from phonograd.android_harness.phones.power import parse_zones
from phonograd.android_harness.timing.cooling import Cooling, cool_down
from tests.android_harness.fake_session import FakePhone, FakeSession, FakeStop, sample_at

BASELINE = 30.0


def await_cool(phone: FakePhone, limit: float = 300.0, baseline: float | None = BASELINE) -> Cooling:
    session = FakeSession(phone)
    return cool_down(session.sample, baseline, limit, FakeStop(session))


@pytest.mark.parametrize(
    ("phone", "settings", "expected"),
    [
        (FakePhone(celsius=lambda at_s: 31.9), {}, Cooling("cool", 0.0, 31.9)),
        (FakePhone(celsius=lambda at_s: 40.0 - at_s / 10), {}, Cooling("cool", 80.0, 32.0)),
        # Still cooling when the time is over; without a cooldown there is no wait.
        (FakePhone(celsius=lambda at_s: 60.0 - at_s / 20), {"limit": 100.0}, Cooling("limit", 100.0, 55.0)),
        (FakePhone(celsius=lambda at_s: 80.0), {"limit": 0.0}, Cooling("not asked", 0.0, 80.0)),
        (
            FakePhone(changes=lambda at_s: {"temperatures_c": {}, "battery_temperature_c": None}),
            {},
            Cooling("no sensor", 0.0, None),
        ),
        (FakePhone(), {"baseline": None}, Cooling("no sensor", 0.0, 30.0)),
        # A severe thermal status waits even at the baseline's temperature.
        (FakePhone(changes=lambda at_s: {"thermal_status": 3 if at_s < 50 else 2}), {}, Cooling("cool", 50.0, 30.0)),
    ],
)
def test_when_a_wait_ends(phone: FakePhone, settings: dict[str, Any], expected: Cooling) -> None:
    assert await_cool(phone, **settings) == expected


def test_a_phone_that_stops_cooling_has_settled() -> None:
    cooling = await_cool(FakePhone(celsius=lambda at_s: max(35.0, 45.0 - at_s)))
    assert cooling.outcome == "settled"
    assert 10 + 29 < cooling.seconds < 10 + 34
    assert cooling.temperature_c == 35.0


def test_a_phone_that_stays_severely_hot_fails() -> None:
    phone = FakePhone(changes=lambda at_s: {"thermal_status": 4})
    with pytest.raises(NoPhoneError, match="thermal status critical after waiting 60 s, expected less than severe"):
        await_cool(phone, limit=60.0)
    with pytest.raises(NoPhoneError, match="after waiting 0 s"):
        await_cool(phone, limit=0.0)


def test_a_stop_ends_the_wait() -> None:
    session = FakeSession(FakePhone(celsius=lambda at_s: 60.0))
    stop = FakeStop(session)
    stop.set()
    assert cool_down(session.sample, BASELINE, 300.0, stop).seconds == 0.0


def test_a_thermal_zone_with_the_state_of_charge_is_ignored() -> None:
    assert parse_zones("soc 100\nsoc_thermal 39000\n") == {"soc_thermal": 39.0}


@pytest.mark.parametrize(
    ("temperatures", "expected"),
    [
        ({"CPU0": 40.0, "CPU3": 45.5, "GPU": 70.0, "SKIN": 35.0}, 45.5),
        ({"cpu-1-0-usr": 51.0, "gpuss-0": 60.0, "pm8150-tz": 37.0}, 51.0),
        ({"BIG": 48.0, "LITTLE": 44.0, "G3D": 66.0}, 48.0),
        ({"mtktscpu": 47.0, "mtktsbattery": 30.0}, 47.0),
        ({"soc_thermal": 39.0}, 39.0),
        ({"skin": 31.0, "xo_therm": 33.0}, 33.0),
        ({}, 25.0),
    ],
)
def test_the_hottest_cpu_sensor_counts_else_the_hottest_else_the_batterys(
    temperatures: dict[str, float], expected: float
) -> None:
    assert sample_at(0.0, temperatures_c=temperatures).hottest_c == expected
