"""Threads kept apart by what they wait for, so that a hundred updates to settle hold up no answer that needs none.

What only reads runs in the threads that starlette and its file responses share, and must find one free at any time.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import anyio.to_thread
from anyio import CapacityLimiter

# More would only take turns: the disk and the interpreter's lock are the same for all.
SETTLING_THREADS = 2
STORING_THREADS = 4
AUTHENTICATING_THREADS = 4

P = ParamSpec("P")
R = TypeVar("R")


class ThreadPool:
    """A pool that runs at most `threads` calls at once; the others wait in the order they came, and hold no thread."""

    def __init__(self, threads: int):
        self._limiter = CapacityLimiter(threads)

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call it in a thread of this pool."""
        return await anyio.to_thread.run_sync(lambda: function(*args, **kwargs), limiter=self._limiter)


class ThreadPools:
    """The pools of one application.

    settling: the coordinator, which measures updates side by side and decides on one at a time. writing: other
    transactions of the ledger, which has one writer. storing: bytes to the disk and their hashes. authenticating:
    tokens, whose use is noted at times.
    """

    def __init__(self) -> None:
        self.settling = ThreadPool(SETTLING_THREADS)
        self.writing = ThreadPool(1)
        self.storing = ThreadPool(STORING_THREADS)
        self.authenticating = ThreadPool(AUTHENTICATING_THREADS)
