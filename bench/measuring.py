"""Measuring in a fresh process: its peak memory is then the measured code's own, and nothing is warm by accident."""

import multiprocessing
import resource
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


def in_fresh_process(function: Callable[..., Result], *arguments: object) -> Result:
    """Call a module-level function in a new interpreter; its exceptions come back as they are."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def peak_rss_bytes() -> int:
    """Peak resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
