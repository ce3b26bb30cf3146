"""Tiles computed ahead in a thread: NumPy, file reads and hashing release the GIL."""

from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, cast

# Tiles computed ahead: enough that neither side waits at every tile.
PREFETCH_TILES = 4

T = TypeVar("T")


def prefetch(items: Generator[T, None, None]) -> Iterator[T]:
    """The same items in the same order, computed in another thread, up to PREFETCH_TILES items in advance."""
    end = object()
    with ThreadPoolExecutor(1) as executor:
        waiting = deque(executor.submit(next, items, end) for _ in range(PREFETCH_TILES))
        try:
            while (item := waiting.popleft().result()) is not end:
                waiting.append(executor.submit(next, items, end))
                yield cast(T, item)
        finally:
            executor.shutdown(wait=True, cancel_futures=True)
            items.close()
