"""Wait until a phone is cool enough for the next epoch."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from phonograd.android_harness.errors import NoPhoneError
from phonograd.android_harness.phones.readiness import THERMAL_STATUSES
from phonograd.android_harness.result import CoolingOutcome, Sample

NEAR_BASELINE_C = 2.0
SETTLED_C, SETTLED_SECONDS = 0.5, 30.0
SEVERE = 3  # PhoneFacts.thermal_status
ASK_SECONDS = 2.0


@dataclass(frozen=True)
class Cooling:
    """How a wait ended, how long it took, and the last temperature if there is a sensor."""

    outcome: CoolingOutcome
    seconds: float
    temperature_c: float | None


def thermal_status_name(status: int) -> str:
    """Android's name of a thermal status."""
    return THERMAL_STATUSES[min(max(status, 0), len(THERMAL_STATUSES) - 1)]


def cool_down(
    sample: Callable[[], Sample],
    baseline_c: float | None,
    limit_seconds: float,
    stop: threading.Event,
) -> Cooling:
    """Wait until the phone is as cool as at the beginning, stops cooling, or the limit is reached.

    Time is measured by the samples' times. No epoch starts at thermal status severe or worse: raises NoPhoneError if
    that still holds at the limit. Returns early when `stop` is set.
    """
    seen: list[tuple[float, float]] = []  # (at_s, °C)
    began: float | None = None
    while True:
        now = sample()
        began = now.at_s if began is None else began
        waited = now.at_s - began
        temperature = now.hottest_c
        if temperature is not None:
            seen.append((now.at_s, temperature))
        severe = now.thermal_status is not None and now.thermal_status >= SEVERE
        outcome = _outcome(seen, baseline_c, limit_seconds)
        if severe and waited >= limit_seconds:
            status = thermal_status_name(now.thermal_status or 0)
            raise NoPhoneError(
                f"thermal status {status} after waiting {waited:.0f} s, expected less than severe; let it cool, out of "
                "its case and off the charger, or raise `cooldown_seconds`"
            )
        if outcome is not None and not severe:
            return Cooling(outcome, waited, temperature)
        if waited >= limit_seconds or stop.wait(ASK_SECONDS):
            return Cooling("limit", waited, temperature)


def _outcome(seen: list[tuple[float, float]], baseline_c: float | None, limit_seconds: float) -> CoolingOutcome | None:
    if limit_seconds == 0:
        return "not asked"
    if not seen or baseline_c is None:
        return "no sensor"
    at_s, temperature = seen[-1]
    if temperature <= baseline_c + NEAR_BASELINE_C:
        return "cool"
    earlier = [then for then_s, then in seen if then_s <= at_s - SETTLED_SECONDS]
    return "settled" if earlier and earlier[-1] - temperature < SETTLED_C else None
