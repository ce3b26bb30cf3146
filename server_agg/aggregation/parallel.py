"""Two threads for work on tiles: NumPy, file reads and hashing release the GIL."""

import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, cast

# More gain nothing: two saturate the memory bus, and a server receives uploads meanwhile.
THREADS = min(2, os.cpu_count() or 1)
# Tiles computed ahead: enough that neither side waits at every tile.
PREFETCH_TILES = 4

T = TypeVar("T")
R = TypeVar("R")


def run_in_threads(items: Iterable[T], work: Callable[[Iterator[T]], R], threads: int = THREADS) -> list[R]:
    """Run `work` in `threads` threads that share one iterator over `items`. Returns each thread's result.

    An item must stay valid while later ones are read. The first error ends all threads and is raised.
    """
    shared = _SharedIterator(items)
    if threads == 1:
        return [work(shared)]
    with ThreadPoolExecutor(threads) as executor:
        running = [executor.submit(shared.guarded, work) for _ in range(threads)]
    return [thread.result() for thread in running]


class _SharedIterator(Iterator[T]):
    """An iterator for several threads; it ends for all of them when one fails."""

    def __init__(self, items: Iterable[T]):
        self._items = iter(items)
        self._lock = threading.Lock()
        self._failed = False

    def __next__(self) -> T:
        with self._lock:
            if self._failed:
                raise StopIteration
            return next(self._items)

    def guarded(self, work: Callable[[Iterator[T]], R]) -> R:
        try:
            return work(self)
        except BaseException:
            self._failed = True
            raise


def prefetch(items: Generator[T, None, None], ahead: int = PREFETCH_TILES) -> Iterator[T]:
    """The same items in the same order, computed in another thread, up to `ahead` items in advance."""
    end = object()
    with ThreadPoolExecutor(1) as executor:
        waiting = deque(executor.submit(next, items, end) for _ in range(ahead))
        try:
            while (item := waiting.popleft().result()) is not end:
                waiting.append(executor.submit(next, items, end))
                yield cast(T, item)
        finally:
            executor.shutdown(wait=True, cancel_futures=True)
            items.close()
