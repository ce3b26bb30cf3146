"""Threads of unequal speed share work: everything is done once, and a slow core holds nobody up for long."""

import os
import subprocess
from pathlib import Path

import pytest

from phonograd.device_runtime.native_build import build_program
from phonograd.device_runtime.native_build.targets import NATIVE
from tests.support.waiting import PATIENCE_SECONDS

HERE = Path(__file__).parent
# Of a phone with 1 fast, 3 middle and 4 little cores; of two cores of which one is slowed by half; and of equal ones.
PHONE = (1.0, 0.75, 0.75, 0.75, 0.25, 0.25, 0.25, 0.25)
SLOWED = (1.0, 0.5)
EQUAL = (1.0,) * 4


@pytest.fixture(scope="module")
def tool() -> Path:
    base = [NATIVE / "src" / "base" / f"{name}.cpp" for name in ("cpu_cores", "files", "shares", "thread_pool")]
    parts = NATIVE / "src" / "operators" / "output_parts.cpp"
    return build_program("shares_tool", [HERE / "shares_tool.cpp", *base, parts])


def model_shares(tool: Path, items: int, speeds: tuple[float, ...], way: str = "model") -> tuple[list[int], float]:
    """Items that each thread did (the tool fails unless each was done once), and when the last one ended."""
    line = [str(tool), way, str(items), *map(str, speeds)]
    *done, last = subprocess.run(line, capture_output=True, text=True, check=True).stdout.split()
    return list(map(int, done)), float(last)


@pytest.mark.parametrize("way", ["model", "back"])
@pytest.mark.parametrize("items", [650, 300, 1500])
@pytest.mark.parametrize("speeds", [PHONE, SLOWED, EQUAL])
def test_cores_of_unequal_speed_work_at_nine_tenths_of_what_they_can_together(
    tool: Path, items: int, speeds: tuple[float, ...], way: str
) -> None:
    done, last = model_shares(tool, items, speeds, way)
    assert sum(done) == items
    assert items / sum(speeds) / last >= 0.9


@pytest.mark.parametrize("panel", [12, 16, 32, 48])  # of NEON, AVX2, SME and AVX-512
@pytest.mark.parametrize(("H", "N"), [(650, 200), (300, 200), (1500, 700)])
@pytest.mark.parametrize("speeds", [PHONE, PHONE[::-1], SLOWED, EQUAL])
def test_parts_of_the_output_layer_keep_unequal_cores_busy(
    tool: Path, speeds: tuple[float, ...], H: int, N: int, panel: int
) -> None:
    """The tool fails unless the pieces are each part's columns and Gram matrix once."""
    line = [str(tool), "parts", str(H), str(N), str(panel), *map(str, speeds)]
    assert float(subprocess.run(line, capture_output=True, text=True, check=True).stdout) >= 0.9


def test_equal_cores_keep_their_own_shares(tool: Path) -> None:
    assert model_shares(tool, 640, EQUAL) == ([160] * 4, 160.0)


@pytest.mark.parametrize("items", [0, 1, 7])
def test_fewer_items_than_cores(tool: Path, items: int) -> None:
    done, _ = model_shares(tool, items, PHONE)
    assert sum(done) == items


def test_a_thread_that_waits_long_sleeps(tool: Path) -> None:
    """Sleeping frees its core and saves the battery; a thread that spins for ever runs into the time limit."""
    done = subprocess.run([tool, "waiting", "3"], capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS)
    assert done.stdout.splitlines() == ["for a task", "at a barrier", "for the workers"]


def test_threads_that_outnumber_their_cpus_spin_briefly(tool: Path) -> None:
    """The thread that they wait for needs the core that they spin on."""
    one = {min(os.sched_getaffinity(0))}

    def spins(threads: int) -> int:
        line = [tool, "spins", str(threads)]
        done = subprocess.run(line, capture_output=True, check=True, preexec_fn=lambda: os.sched_setaffinity(0, one))
        return int(done.stdout)

    assert spins(2) * 10 <= spins(1)


def test_threads_share_phase_after_phase(tool: Path) -> None:
    """What `make sanitize` looks at for races."""
    line = [tool, "real", "7", "200", "1", "3", "1"]
    assert float(subprocess.run(line, capture_output=True, text=True, check=True).stdout) > 0
