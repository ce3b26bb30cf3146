"""Measuring in a fresh process, so that its peak memory is the measured code's own and no cache is warm by accident."""

import multiprocessing
import signal
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

from phonograd.device_runtime.base.system import end_with_parent, interrupts_held, memory_bytes

Result = TypeVar("Result")

# By default glibc returns the logits' 24 MB to the system after each step; with these settings it keeps them.
MALLOC_SETTINGS: Mapping[str, str] = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "8000000000",
    "MALLOC_TOP_PAD_": "268435456",
}


def in_fresh_process(function: Callable[..., Result], *arguments: object) -> Result:
    """Call a module-level function in a new interpreter, and return its result or raise its exception."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, initializer=_end_at_interrupts) as pool:
        with interrupts_held():
            future = pool.submit(function, *arguments)
        return future.result()


def _end_at_interrupts() -> None:
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def peak_rss_bytes(pid: int | None = None) -> int:
    """Peak resident memory of a Linux process so far."""
    return memory_bytes("VmHWM", pid)


def rss_bytes(pid: int | None = None) -> int:
    """Resident memory of a Linux process now."""
    return memory_bytes("VmRSS", pid)
