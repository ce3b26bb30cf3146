"""Measuring in a fresh process, so that its peak memory is the measured code's own and no cache is warm by accident."""

import multiprocessing
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

from phonograd.device_runtime.base.system import memory_bytes

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
    """Peak resident memory of a Linux process so far."""
    return memory_bytes("VmHWM", pid)


def rss_bytes(pid: int | None = None) -> int:
    """Resident memory of a Linux process now."""
    return memory_bytes("VmRSS", pid)
