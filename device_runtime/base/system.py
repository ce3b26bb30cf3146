"""What the operating system says of this machine and process. Linux, macOS and Windows differ here."""

import contextlib
import ctypes
import os
import platform
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

M_ARENA_MAX = -8  # of glibc's malloc.h


def usable_cores() -> int:
    """The cores that this process may use; all of the machine's where the system has no affinity (macOS, Windows)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name as the system has it, else its architecture."""
    try:
        if platform.system() == "Darwin":
            line = ["sysctl", "-n", "machdep.cpu.brand_string"]
            return subprocess.run(line, capture_output=True, text=True, check=True).stdout.strip()
        names = [line for line in cpuinfo.read_text("utf-8").splitlines() if line.startswith("model name")]
        return names[0].partition(":")[2].strip()
    except (OSError, IndexError, subprocess.CalledProcessError):
        return platform.processor() or platform.machine()


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """Keep Ctrl-C from processes that the block starts, until they ask for it: a new Python answers it with a traceback
    while it imports. Does nothing on Windows.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_parent(*ended: "Connection") -> None:
    """Let this process, which multiprocessing started, end when its parent does, killed or not, else it waits for work
    forever; or when the other end of one of these pipes is closed.
    """
    import multiprocessing.connection  # noqa: PLC0415  # most commands start no process; it takes them 10 ms

    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        multiprocessing.connection.wait([parent.sentinel, *ended])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def most_open_files(raised_to: int = 0) -> int:
    """Return how many descriptors this process may have, after raising that to `raised_to` as far as the system allows.

    sys.maxsize where there is no such limit, or it is not known (Windows).
    """
    try:
        import resource  # noqa: PLC0415  # not on Windows
    except ImportError:
        return sys.maxsize
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = raised_to if hard == resource.RLIM_INFINITY else min(raised_to, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # macOS allows less than it says
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def peak_rss_bytes() -> int:
    """Highest resident memory of this process so far, in bytes; 0 on Windows."""
    if sys.platform == "linux":
        peak = memory_bytes("VmHWM")  # not getrusage: its figure begins with the parent's, from before exec
    elif sys.platform == "win32":
        peak = 0
    else:
        import resource  # noqa: PLC0415  # not on Windows

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in bytes on macOS
    return peak


def memory_bytes(name: str, pid: int | None = None) -> int:
    """Memory of a Linux process, this one by default: VmHWM (highest resident so far), VmRSS (resident now) or another
    line of proc_pid_status(5). Raises OSError without /proc or that line."""
    status = Path("/proc") / ("self" if pid is None else str(pid)) / "status"
    for line in status.read_text("ascii", "replace").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"{status}: no {name}; Linux is needed to measure memory")


def use_one_malloc_arena() -> None:
    """Have all threads of this process that start from now on allocate from one heap. Does nothing but with glibc.

    glibc gives threads heaps of their own, up to eight a core, and each keeps what was freed in it. A process whose
    threads allocate large arrays in turn then keeps them several times.
    """
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)):
        mallopt(M_ARENA_MAX, 1)
