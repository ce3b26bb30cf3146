"""Ctrl-C between steps, never inside one: a state saved then is whole."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def deferred_interrupt() -> Iterator[Callable[[], None]]:
    """Hold the first SIGINT back until the block calls the function it is given, which then raises KeyboardInterrupt.

    A second SIGINT interrupts at once. Outside the main thread, or where the program has a handler of its own, signals
    are left alone. A SIGINT the block never asked for is raised when it ends.
    """
    ours = threading.current_thread() is threading.main_thread()
    ours = ours and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    pending = False

    def note(_number: int, _frame: object) -> None:
        nonlocal pending
        pending = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def check() -> None:
        nonlocal pending
        if pending:
            pending = False
            raise KeyboardInterrupt

    if ours:
        signal.signal(signal.SIGINT, note)
    try:
        yield check
        check()
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
