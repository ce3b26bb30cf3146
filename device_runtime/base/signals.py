"""Signals that come while the native library runs."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def signals_noted(raised: list[BaseException]) -> Iterator[None]:
    """Append what handlers of Ctrl-C and SIGTERM raise to `raised` until the block's end.

    While the native library runs, ctypes would drop an exception that is raised before a callback's first line.
    """

    def noting(handler: Callable[[int, FrameType | None], object]) -> Callable[[int, FrameType | None], None]:
        def note(number: int, frame: FrameType | None) -> None:
            try:
                handler(number, frame)
            except BaseException as error:
                raised.append(error)

        return note

    before = {}
    if threading.current_thread() is threading.main_thread():  # the only one that handles them
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        before = {number: handler for number, handler in handlers.items() if callable(handler)}
    for number, handler in before.items():
        signal.signal(number, noting(handler))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
