"""One contestant of `bench epoch` in a process of its own: it loads once, then trains one step for each line on stdin.

stdin: the number of a window on each line; the process exits at its end. stdout: JSON lines, first the result of
loading or why it failed, then seconds, loss and peak memory of each step. Only NumPy and the peer's own packages are
needed, so that a peer can run in another Python environment.
"""

import ctypes
import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from phonograd.bench.measuring import peak_rss_bytes

Ids = npt.NDArray[np.int64]
PR_SET_PDEATHSIG = 1
MISSING = 10  # exit code of UnsupportedError: a package or a processor feature is missing


@dataclass(frozen=True)
class Job:
    """What a peer (a module) is told.

    windows: a .npy of int64 [rounds, 2, T, B], tokens and targets; output_sample: None is the full softmax, else it is
    over the windows' words and about so many others.
    """

    peer: str
    artifacts: str
    windows: str
    threads: int
    variant: str = ""
    output_sample: int | None = None


class UnavailableError(Exception):
    """This contestant can't run here (not installed, or the CPU lacks instructions); it is left out."""


class Contestant(Protocol):
    """Returned by `load(job)` of a peer's module."""

    @property
    def about(self) -> Mapping[str, Any]:
        """Versions and other facts that identify the contestant."""
        ...

    def step(self, tokens: Ids, targets: Ids, /) -> float | None:
        """Train on one window [T, B]. Returns the loss before the update, or None if the contestant has no loss."""
        ...


@runtime_checkable
class Phased(Protocol):
    """A contestant that times the phases of its step itself."""

    def phases(self) -> Mapping[str, float]:
        """Seconds of the last step by phase."""
        ...


def serve(job: Job, commands: IO[str], answers: IO[str]) -> None:
    """Load the job's peer and step until `commands` ends."""

    def answer(**fields: object) -> None:
        print(json.dumps(fields), file=answers, flush=True)

    baseline = peak_rss_bytes()
    windows = np.load(job.windows)
    began = time.perf_counter()
    try:
        contestant: Contestant = importlib.import_module(job.peer).load(job)
    except Exception as error:
        not_here = isinstance(error, ImportError | UnavailableError) or getattr(error, "exit_code", None) == MISSING
        answer(**{"left_out" if not_here else "failed": f"{error}" or type(error).__name__})
        return
    answer(baseline_rss_bytes=baseline, load_seconds=time.perf_counter() - began, about=dict(contestant.about))
    for line in commands:
        tokens, targets = windows[int(line)]
        began = time.perf_counter()
        loss = contestant.step(tokens, targets)
        seconds = time.perf_counter() - began
        phases = dict(contestant.phases()) if isinstance(contestant, Phased) else {}
        answer(seconds=seconds, loss=loss, phases=phases, peak_rss_bytes=peak_rss_bytes())


def main() -> None:
    """Entry point: the job as JSON in the first argument."""
    # A worker is stopped between its turns. If its parent is killed, nothing would wake it, so it dies with the parent.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # libraries may print to stdout, which is only for the answers
    sys.stdout = sys.stderr  # keeps the order of their lines: the last one is a failure's message
    serve(Job(**json.loads(sys.argv[1])), sys.stdin, answers)
