"""When a phone is cool enough for the next epoch."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from phonograd.android_harness.errors import NoPhoneError
from phonograd.android_harness.phones.readiness import HEAT
from phonograd.android_harness.result import CoolingEnd, Sample

NEAR_BASELINE_C = 2.0
SETTLED_C, SETTLED_SECONDS = 0.5, 30.0
SEVERE = 3  # PhoneFacts.thermal_status
ASK_SECONDS = 2.0


@dataclass(frozen=True)
class Cooling:
    """How a wait ended and how long it was. `temperature_c`: the one that was watched, where there is one."""

    outcome: CoolingEnd
    seconds: float
    temperature_c: float | None


def status_name(status: int) -> str:
    """A thermal status in Android's words."""
    return HEAT[min(max(status, 0), len(HEAT) - 1)]


def cool_down(
    sample: Callable[[], Sample],
    baseline_c: float | None,
    limit_seconds: float,
    stop: threading.Event,
    ask_seconds: float = ASK_SECONDS,
) -> Cooling:
    """Wait until the phone is as cool as it was at the beginning, or gets no cooler, or the limit is reached.

    Time is the samples' own. A phone whose thermal status is severe or worse is waited for and never worked on:
    NoPhoneError when the limit is reached. Returns early when `stop` is set.
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
            raise NoPhoneError(
                f"thermal status {status_name(now.thermal_status or 0)} after a wait of {waited:.0f} s, expected less "
                "than severe; let it cool, out of its case and off the charger, or give --cooldown more seconds"
            )
        if outcome is not None and not severe:
            return Cooling(outcome, waited, temperature)
        if waited >= limit_seconds or stop.wait(ask_seconds):
            return Cooling("limit", waited, temperature)


def _outcome(seen: list[tuple[float, float]], baseline_c: float | None, limit_seconds: float) -> CoolingEnd | None:
    """Why nothing need be waited for any longer; None if there is a reason to."""
    if limit_seconds == 0:
        return "not asked"
    if not seen or baseline_c is None:
        return "no sensor"
    at_s, temperature = seen[-1]
    if temperature <= baseline_c + NEAR_BASELINE_C:
        return "cool"
    earlier = [then for then_s, then in seen if then_s <= at_s - SETTLED_SECONDS]
    return "settled" if earlier and earlier[-1] - temperature < SETTLED_C else None
