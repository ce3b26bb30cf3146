"""Time and memory of a process with all its descendants, from /proc."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

PROC = Path("/proc")
SAMPLE_SECONDS = 0.25
PARENT, FIRST_TIME, LAST_TIME = 1, 11, 15  # fields of /proc/PID/stat after the name: user, system, and their children's


def tick_seconds() -> float:
    """The unit in which Linux counts a process's CPU time: shorter work reads as none."""
    return 1 / os.sysconf("SC_CLK_TCK")


def cpu_seconds(root: int) -> float:
    """CPU time that the tree of `root` has used, with children that have ended."""
    return sum(sum(map(int, fields[FIRST_TIME:LAST_TIME])) for _, fields in _tree(root)) * tick_seconds()


def pss_bytes(root: int) -> int:
    """Proportional set size of the tree: pages that n processes map count 1/n for each."""
    return sum(_pss(pid) for pid, _ in _tree(root))


class PeakPss(threading.Thread):
    """Samples a tree's memory until `stop`."""

    def __init__(self, root: int):
        super().__init__(daemon=True)
        self._root = root
        self._ended = threading.Event()
        self._peak = 0

    def run(self) -> None:
        """Keep the largest sample of the memory of all processes, until `stop`."""
        while not self._ended.wait(SAMPLE_SECONDS):
            self._peak = max(self._peak, pss_bytes(self._root))

    def stop(self) -> int:
        """The largest sample, in bytes."""
        self._ended.set()
        self.join()
        return self._peak


def _tree(root: int) -> Iterator[tuple[int, list[str]]]:
    processes = {int(path.name): fields for path in PROC.glob("[0-9]*") if (fields := _fields(path))}
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        if pid in processes:
            yield pid, processes[pid]
        waiting += [child for child, fields in processes.items() if int(fields[PARENT]) == pid]


def _fields(folder: Path) -> list[str]:
    try:
        return (folder / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []  # it has ended


def _pss(pid: int) -> int:
    try:
        for line in (PROC / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass  # it has ended
    return 0
