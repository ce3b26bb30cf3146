"""Measuring in a fresh process, so that its peak memory is the measured code's own and no cache is warm by accident."""

import multiprocessing
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")

# By default glibc returns the logits' 24 MB to the system after each step; with these settings it keeps them.
MALLOC_SETTINGS: Mapping[str, str] = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "8000000000",
    "MALLOC_TOP_PAD_": "268435456",
}


def in_fresh_process(function: Callable[..., Result], *arguments: object) -> Result:
    """Call a module-level function in a new interpreter, and return its result or raise its exception."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def peak_rss_bytes(pid: int | None = None) -> int:
    """Peak resident memory of a process so far (VmHWM; getrusage also counts the parent before the fork)."""
    return _status_bytes(pid, "VmHWM")


def rss_bytes(pid: int | None = None) -> int:
    """Resident memory of a process now."""
    return _status_bytes(pid, "VmRSS")


def _status_bytes(pid: int | None, name: str) -> int:
    status = Path("/proc") / ("self" if pid is None else str(pid)) / "status"
    for line in status.read_text("ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"{status}: no {name}; Linux is needed to measure memory")
