"""Rates and numbers of requests, by phone or address, in bounded memory."""

import ipaddress
import time
from collections import Counter, OrderedDict
from collections.abc import Callable


class TokenBuckets:
    """A token bucket a key: `burst` at once, then `per_second`; the `max_keys` used last are remembered.

    A key that is forgotten starts with a full bucket. `clock`: seconds. Not thread-safe.
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
        """Take one from `key`'s bucket: 0.0, or the seconds until there is one to take."""
        now = self._clock()
        tokens, when = self._buckets.pop(key, (float(self._burst), now))
        tokens = min(float(self._burst), tokens + max(0.0, now - when) * self._per_second)
        wait = max(0.0, (1.0 - tokens) / self._per_second)
        self._buckets[key] = (tokens if wait else tokens - 1.0, now)
        if len(self._buckets) > self._max_keys:
            self._buckets.popitem(last=False)
        return wait


class ConcurrencyLimit:
    """How many requests each key has open; keys without one are not remembered. For one event loop."""

    def __init__(self, limit: int):
        self._limit = limit
        self._open: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def acquire(self, key: str) -> bool:
        """Take one of `key`'s places, to be given back with `leave`; False if all are taken."""
        if self._open[key] >= self._limit:
            return False
        self._open[key] += 1
        return True

    def release(self, key: str) -> None:
        """Give one place back."""
        self._open[key] -= 1
        if not self._open[key]:
            del self._open[key]


def address_key(host: str) -> str:
    """What an unknown client is limited by: its address, or the /64 of an IPv6 one, which one client has to itself."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host[:64]  # what a proxy says
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)
