"""What tests of learning found beside what they ask for: asserted, and kept for `make numerics-test`."""

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

MARGINS = "PHONOGRAD_TEST_MARGINS"  # a file that figures are appended to; without it they are not kept
SEED = "PHONOGRAD_TEST_SEED"
THREADS = "PHONOGRAD_TEST_THREADS"


class Figure(msgspec.Struct, frozen=True):
    """One that a test found, and the limit that it must stay below (`high`) or above (`low`)."""

    test: str
    name: str
    value: float
    low: float | None = None
    high: float | None = None


Margin = Callable[..., None]


@pytest.fixture
def margin(request: pytest.FixtureRequest) -> Margin:
    """`margin("loss", value, high=2.0)` asserts that the value is below the limit; `low` is for one from below."""

    def check(name: str, value: float, *, low: float | None = None, high: float | None = None) -> None:
        if file := os.environ.get(MARGINS):
            found = Figure(request.node.nodeid, name, float(value), low, high)
            with Path(file).open("ab") as kept:
                kept.write(msgspec.json.encode(found) + b"\n")
        assert high is None or value < high, f"{name}: below {high} expected, found {value}"
        assert low is None or value > low, f"{name}: above {low} expected, found {value}"

    return check


@pytest.fixture(scope="session")
def seed() -> int:
    """A seed for a test of learning, which must hold for any: 1, or what `make numerics-test` sets."""
    return int(os.environ.get(SEED, "1"))


@pytest.fixture(scope="session")
def threads() -> int:
    """Threads for a test of learning: 1, or what `make numerics-test` sets."""
    return int(os.environ.get(THREADS, "1"))
