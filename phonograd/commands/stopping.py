"""Signals that end long work at a moment when nothing is lost."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def stop_signals() -> Iterator[Callable[[], int]]:
    """Note SIGTERM and SIGINT while the block lasts; yields a function that gives the first one's number, 0 for none.

    A main thread's only, as all handling of signals in Python.
    """
    noted: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        noted.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield lambda: noted[0] if noted else 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
