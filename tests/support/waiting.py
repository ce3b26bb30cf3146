"""Waiting for what has no event to wait for."""

import time
from collections.abc import Callable

# Far beyond what anything takes, on a machine that is busy with something else too: to wait is to hang, not to be slow.
PATIENCE_SECONDS = 120.0


def until(reached: Callable[[], object], what: str = "it") -> None:
    """Return as soon as `reached()` is true. AssertionError, naming `what`, if that never comes."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not reached():
        assert time.monotonic() < end, f"{what} never came in {PATIENCE_SECONDS:.0f} s"
        time.sleep(0.01)
