"""A contestant in a process of its own. stdout: its answers, each a line of JSON, and nothing else.

Only NumPy and the peer's own packages are needed, so that a peer can run in another Python environment.
"""

import ctypes
import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from phonograd.bench.measuring import peak_rss_bytes
from phonograd.device_runtime.formats.tensor_file import save_tensors

Ids = npt.NDArray[np.int64]
PR_SET_PDEATHSIG = 1
MISSING = 10  # exit code of UnsupportedError: a package or a processor feature is missing

# Writes an answer of these fields.
Answer = Callable[..., None]


class UnavailableError(Exception):
    """This contestant can't run here (not installed, or the CPU lacks instructions); it is left out."""


class Contestant(Protocol):
    """Returned by `load(job)` of a peer's module."""

    @property
    def about(self) -> Mapping[str, Any]:
        """Versions and other facts that identify the contestant."""

    def step(self, tokens: Ids, targets: Ids, /) -> float | None:
        """Train on one window [T, B]. Returns the loss before the update, or None if the contestant has no loss."""


@runtime_checkable
class Phased(Protocol):
    """A contestant that times the phases of its step itself."""

    def phases(self) -> Mapping[str, float]:
        """Seconds of the last step by phase."""


@dataclass(frozen=True)
class Job:
    """Training steps, one for each line on stdin, the number of a window; the process ends with it.

    peer: a module; windows: a .npy of int64 [rounds, 2, T, B], tokens and targets; output_sample: None is the full
    softmax, else it is over the windows' words and about so many others; weights: where the tensors are written at the
    end, by the contestant's `weights()`.
    """

    peer: str
    artifacts: str
    windows: str
    threads: int
    variant: str = ""
    output_sample: int | None = None
    weights: str | None = None

    def run(self, answer: Answer) -> None:
        """Answers what loading took, then seconds, loss and peak memory of each step."""
        baseline = peak_rss_bytes()
        windows = np.load(self.windows)
        began = time.perf_counter()
        contestant: Contestant = importlib.import_module(self.peer).load(self)
        answer(baseline_rss_bytes=baseline, load_seconds=time.perf_counter() - began, about=dict(contestant.about))
        for line in sys.stdin:
            tokens, targets = windows[int(line)]
            began = time.perf_counter()
            loss = contestant.step(tokens, targets)
            seconds = time.perf_counter() - began
            phases = dict(contestant.phases()) if isinstance(contestant, Phased) else {}
            answer(seconds=seconds, loss=loss, phases=phases, peak_rss_bytes=peak_rss_bytes())
        if self.weights is not None:
            save_tensors(Path(self.weights), contestant.weights())  # type: ignore[attr-defined]  # those of parity


class Aggregator(Protocol):
    """Returned by `load(job)` of a peer's module; holds the updates in memory if the peer needs them there."""

    @property
    def versions(self) -> Mapping[str, str]:
        """The versions of the packages in use."""

    def aggregate(self) -> Callable[[Path], object]:
        """Average all updates. Returns a function that writes the average as a tensor file, outside the measurement."""


@dataclass(frozen=True)
class AggregationJob:
    """Averaging updates from files, once. updates: path and weight of each; average: the path of the result."""

    peer: str
    base: str
    updates: Sequence[tuple[str, int]]
    average: str

    def run(self, answer: Answer) -> None:
        """Answers time and memory of loading and averaging."""
        peer = importlib.import_module(self.peer)
        baseline = peak_rss_bytes()
        began = time.perf_counter()
        aggregator: Aggregator = peer.load(self)
        loaded = time.perf_counter()
        write = aggregator.aggregate()
        done, peak = time.perf_counter(), peak_rss_bytes()
        write(Path(self.average))
        answer(
            load_seconds=loaded - began,
            aggregate_seconds=done - loaded,
            peak_rss_bytes=peak,
            own_rss_bytes=max(0, peak - baseline),  # the kernel counts pages late
            versions=dict(aggregator.versions),
        )


# Called when the first round begins, and after each round.
Tell = Callable[[], None]


@dataclass(frozen=True)
class SimulatorJob:
    """A simulation by `run(job, tell)` of a peer's module.

    users: a JSONL file; rehearsal: a text; streams: the ids of each phone in the first round, arrays by place in an
    .npz; out: a folder for its files; learning_rate: of all phones; settings: of SimulationSettings, for phonograd's
    own.
    """

    peer: str
    artifacts: str
    users: str
    rehearsal: str
    streams: str
    out: str
    phones: int
    rounds: int
    workers: int
    learning_rate: float
    settings: Mapping[str, Any]

    def run(self, answer: Answer) -> None:
        """Answers with no field when the first round begins and after each, then losses and versions.

        The losses are of each round, nats a token in a phone's last step, the mean.
        """
        losses, versions = importlib.import_module(self.peer).run(self, answer)
        answer(losses=losses, versions=dict(versions))


@dataclass(frozen=True)
class MaskedJob:
    """A round of secure aggregation by `run(job)` of a peer's module: every phone trained the same.

    base: a tensor file; folder: for the peer's files; dead: phones that send shares and then nothing, the last ones;
    settings: the peer's own.

    `run` returns, by kind of message, medians of the phones_run phones that masked the model: phone_seconds (CPU;
    also of encoding), up_bytes, down_bytes; server_seconds (CPU: messages, adding, unmasking); own_rss_bytes, the
    server's peak above its packages; difference from the plain sum, None if it was not unmasked, and its tolerance;
    counted: figures that are counted up from measured parts; versions.
    """

    peer: str
    base: str
    folder: str
    phones: int
    dead: int
    settings: Mapping[str, Any]

    def run(self, answer: Answer) -> None:
        """Answers once, with all figures."""
        answer(**importlib.import_module(self.peer).run(self))


JOBS = {job.__name__: job for job in (Job, AggregationJob, SimulatorJob, MaskedJob)}


def die_with_parent() -> None:
    """Let this process be killed when its parent ends, even by a kill: nothing else would wake it."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def run_or_leave_out(job: Job | AggregationJob | SimulatorJob | MaskedJob, answer: Answer) -> None:
    """Run the job; who can't run here says so in place of its last answer. Raises any other error."""
    try:
        job.run(answer)
    except Exception as error:
        if not isinstance(error, ImportError | UnavailableError) and getattr(error, "exit_code", None) != MISSING:
            raise
        answer(left_out=f"{error}" or type(error).__name__)


def main() -> None:
    """Entry point: the name of the job's class and the job as JSON. An error ends the process."""
    die_with_parent()  # a worker is stopped between its turns
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # libraries may print to stdout, which is only for the answers
    sys.stdout = sys.stderr  # keeps the order of their lines: the last one is a failure's message

    def answer(**fields: object) -> None:
        print(json.dumps(fields), file=answers, flush=True)

    run_or_leave_out(JOBS[sys.argv[1]](**json.loads(sys.argv[2])), answer)
