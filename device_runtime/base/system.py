"""What the operating system says of this machine and process. Linux, macOS and Windows differ here."""

import ctypes
import os
import sys

M_ARENA_MAX = -8  # of glibc's malloc.h


def usable_cores() -> int:
    """The cores that this process may use; all of the machine's where the system has no affinity (macOS, Windows)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def peak_rss_bytes() -> int:
    """Highest resident memory of this process so far, in bytes; 0 on Windows."""
    try:
        import resource  # noqa: PLC0415  # POSIX
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # Linux counts KiB


def use_one_malloc_arena() -> None:
    """Have all threads of this process that start from now on allocate from one heap. Does nothing but with glibc.

    glibc gives threads heaps of their own, up to eight a core, and each keeps what was freed in it. A process whose
    threads allocate large arrays in turn then keeps them several times.
    """
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)):
        mallopt(M_ARENA_MAX, 1)
