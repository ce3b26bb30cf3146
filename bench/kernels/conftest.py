"""The fixture that benchmarks share: it measures one kernel and adds a row for `--save`."""

import os
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from phonograd.bench.kernels.native import Ceiling, Kernel, NativeKernels
from phonograd.bench.results import result_of, save_result
from phonograd.device_runtime.base.errors import PhonogradError

ROUNDS = 20
THREADS = "OPENBLAS_NUM_THREADS"
NATIVE = pytest.StashKey[NativeKernels]()
ROWS = pytest.StashKey[list[dict[str, Any]]]()

Measure = Callable[[str, Kernel], None]


class Clock:
    """pytest-benchmark's clock: it advances by the seconds that the engine measured itself."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """The clock's time in seconds."""
        return self.now


CLOCK = Clock()


def pytest_addoption(parser: pytest.Parser) -> None:
    """--save."""
    parser.addoption("--save", type=Path, help="write the results here, for `phonograd bench results`")


def pytest_configure(config: pytest.Config) -> None:
    """Fail early if the number of threads is not set or there are no kernels to measure."""
    if not os.environ.get(THREADS, "").isdigit():
        raise pytest.UsageError(
            f"set {THREADS}, the number of threads of the ceiling and the kernels, or run: make bench-kernels"
        )
    try:
        config.stash[NATIVE] = NativeKernels()
    except PhonogradError as error:
        raise pytest.UsageError(str(error)) from error
    config.stash[ROWS] = []


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each benchmark once for each kernel set that this CPU supports."""
    if "kernel_set" in metafunc.fixturenames:
        metafunc.parametrize("kernel_set", metafunc.config.stash[NATIVE].sets)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Time all benchmarks by CLOCK."""
    for item in items:
        item.add_marker(pytest.mark.benchmark(timer=CLOCK))


@pytest.fixture(scope="session")
def ceiling() -> Ceiling:
    """The machine's rate."""
    return Ceiling()


@pytest.fixture
def measure(benchmark: Any, ceiling: Ceiling, request: pytest.FixtureRequest) -> Measure:
    """Measure a kernel of a set ROUNDS times; a product also as a fraction of the ceiling just before and after."""
    threads = int(os.environ[THREADS])

    def run(kernel_set: str, kernel: Kernel) -> None:
        before = ceiling.gflops() if kernel.product else None
        taken = request.config.stash[NATIVE].seconds(kernel_set, kernel, kernel.threads(threads), ROUNDS)
        replay = iter(taken)

        def once() -> None:
            CLOCK.now += next(replay)

        benchmark.pedantic(once, rounds=ROUNDS, iterations=1)
        median = statistics.median(taken)
        rate = kernel.work / median
        fraction = None if before is None else rate / statistics.mean((before, ceiling.gflops()))
        benchmark.extra_info.update(rate=rate, unit=kernel.unit, fraction_of_sgemm=fraction)
        request.config.stash[ROWS].append(
            {
                "kernel": kernel.name,
                "set": kernel_set,
                "shape": kernel.shape,
                "median_seconds": median,
                "rate": rate,
                "unit": kernel.unit,
                "fraction_of_sgemm": fraction,
            }
        )

    return run


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Save the rows of a successful run."""
    path, rows = session.config.getoption("--save"), session.config.stash[ROWS]
    if path is not None and rows and exitstatus == 0:
        document = result_of("kernels", 1, threads=int(os.environ[THREADS]), kernels=rows)
        save_result(path, document, "make bench-kernels")
