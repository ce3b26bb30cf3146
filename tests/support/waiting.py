"""Polling, for conditions that no event reports."""

import os
import time
from collections.abc import Callable

# Much longer than anything takes, even on a busy machine: whoever reaches it hangs. PHONOGRAD_PATIENCE: another limit,
# for those who break code to see a test fail.
PATIENCE_SECONDS = float(os.environ.get("PHONOGRAD_PATIENCE", "600"))


def until(reached: Callable[[], object], what: str = "it") -> None:
    """Return as soon as `reached()` is true. AssertionError, naming `what`, if that never comes."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not reached():
        assert time.monotonic() < end, f"{what} never came in {PATIENCE_SECONDS:.0f} s"
        time.sleep(0.01)
