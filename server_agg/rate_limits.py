"""Limits on the rate and the concurrency of requests, per phone or address, in bounded memory."""

import ipaddress
import time
from collections import Counter, OrderedDict
from collections.abc import Callable


class TokenBuckets:
    """One token bucket per key, of `burst` tokens refilled at `per_second`; keeps the `max_keys` most recently used.

    A key that was dropped starts again with a full bucket. `clock`: seconds. Not thread-safe.
    """

    def __init__(self, per_second: float, burst: int, max_keys: int, clock: Callable[[], float] = time.monotonic):
        self._per_second = per_second
        self._burst = burst
        self._max_keys = max_keys
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # key: (tokens, when)

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, key: str) -> float:
        """Take a token from `key`'s bucket. Returns 0.0, or the seconds until the next token if the bucket is empty."""
        now = self._clock()
        tokens, when = self._buckets.pop(key, (float(self._burst), now))
        tokens = min(float(self._burst), tokens + max(0.0, now - when) * self._per_second)
        wait = max(0.0, (1.0 - tokens) / self._per_second)
        self._buckets[key] = (tokens if wait else tokens - 1.0, now)
        if len(self._buckets) > self._max_keys:
            self._buckets.popitem(last=False)
        return wait


class ConcurrencyLimit:
    """Allow at most `limit` concurrent requests per key. For one event loop."""

    def __init__(self, limit: int):
        self._limit = limit
        self._open: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def acquire(self, key: str) -> bool:
        """Take one of `key`'s slots until `release`; False if none is free."""
        if self._open[key] >= self._limit:
            return False
        self._open[key] += 1
        return True

    def release(self, key: str) -> None:
        """Free a slot of `key`."""
        self._open[key] -= 1
        if not self._open[key]:
            del self._open[key]


def address_key(host: str) -> str:
    """The key of an unauthenticated client: its IPv4 address, or the /64 network of its IPv6 address."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host[:64]  # text from a proxy's X-Forwarded-For
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)
