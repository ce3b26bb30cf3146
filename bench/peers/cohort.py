"""What the peers of masked rounds share: phones in a process beside the server's, and what is measured of both."""

import contextlib
import multiprocessing
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from phonograd.device_runtime.base.system import end_with_parent

_made: list[Any] = []


class Beside(contextlib.AbstractContextManager["Beside"]):
    """An object in a process of its own, whose memory is not the server's. The end of the block ends the process."""

    def __init__(self, make: Callable[..., object], *given: object):
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(1, mp_context=context, initializer=end_with_parent)
        self._pool.submit(_make, make, *given).result()

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def call(self, method: str, *given: object) -> Any:
        """What the object's method returns or raises."""
        return self._pool.submit(_call, method, *given).result()


def _make(make: Callable[..., object], *given: object) -> None:
    _made.append(make(*given))


def _call(method: str, *given: object) -> Any:
    return getattr(_made[0], method)(*given)


@contextlib.contextmanager
def add_seconds(seconds: MutableMapping[str, float], kind: str) -> Iterator[None]:
    """Add the CPU seconds of the block, of all threads of this process."""
    began = time.process_time()
    yield
    seconds[kind] += time.process_time() - began


class Meter:
    """What phones took, by kind: seconds of CPU, and bytes up and down."""

    def __init__(self) -> None:
        self._amounts: dict[str, dict[str, dict[Any, float]]] = {
            side: defaultdict(lambda: defaultdict(float)) for side in ("phone_seconds", "up_bytes", "down_bytes")
        }

    def add(self, phone: Any, kind: str, seconds: float = 0, up: float = 0, down: float = 0) -> None:
        """Add to what a phone took for messages of that kind."""
        for side, amount in zip(self._amounts, (seconds, up, down), strict=True):
            if amount:
                self._amounts[side][kind][phone] += amount

    def medians(self, phones: Sequence[Any]) -> Mapping[str, Mapping[str, float]]:
        """The medians over these phones, by kind."""
        return {
            side: {kind: statistics.median(by_phone[phone] for phone in phones) for kind, by_phone in kinds.items()}
            for side, kinds in self._amounts.items()
        }


class Sampled:
    """A function that runs for its first `most` calls. The others get `instead(what it returned last, *arguments)`.

    seconds: of CPU, under `run`.
    """

    def __init__(self, function: Callable[..., Any], most: int = sys.maxsize, instead: Callable[..., Any] = max):
        self._function, self._most, self._instead = function, most, instead
        self.seconds, self._calls, self._last = defaultdict[str, float](float), 0, None

    def __call__(self, *given: Any) -> Any:
        """Run it, if it has not run often enough."""
        self._calls += 1
        if self._calls > self._most:
            return self._instead(self._last, *given)
        with add_seconds(self.seconds, "run"):
            self._last = self._function(*given)
        return self._last

    @property
    def missing_seconds(self) -> float:
        """CPU seconds of the calls that did not run, at the mean of those that did."""
        return self.seconds["run"] / self._most * max(0, self._calls - self._most)
