"""Rests between training steps: a device that works only part of the time stays cooler."""

import time
from collections.abc import Callable

# Seconds between two questions to `stop`: often enough that a stop seems immediate.
PAUSE_SECONDS = 0.05


def rest_after(busy: float, duty: float) -> float:
    """Seconds to rest after `busy` seconds of work, so that work takes the share `duty` of the wall time.

    duty: in (0, 1].
    """
    return busy * (1 / duty - 1)


def rest(seconds: float, stop: Callable[[], int] | None = None) -> float:
    """Sleep for `seconds`, or until `stop` returns a signal's number; return the seconds slept."""
    began, slept = time.perf_counter(), 0.0
    while slept < seconds and not (stop and stop()):
        time.sleep(min(PAUSE_SECONDS, seconds - slept))
        slept = time.perf_counter() - began
    return slept
