"""Starts the contestants of a benchmark, each in a process of its own, and gives them turns."""

import contextlib
import dataclasses
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn, TypeVar

from phonograd.bench.measuring import MALLOC_SETTINGS
from phonograd.bench.worker import AggregationJob, Job, MaskedJob, SimulatorJob
from phonograd.device_runtime.base.errors import PhonogradError

Answers = dict[str, Any]
Item = TypeVar("Item")
Say = Callable[[str], object]

ROOT = Path(__file__).parents[2]
NONE: Mapping[str, str] = MappingProxyType({})
OURS = "phonograd.bench.peers.backend"
TORCH = "phonograd.bench.peers.pytorch"
PEERS = ("native", "ort", "torch")
TORCH_VARIANTS = ("eager", "lean", "compiled", "bf16")


class BenchError(PhonogradError):
    """A contestant of a benchmark failed, or the contestants' results differ."""

    exit_code = 16


@dataclass(frozen=True)
class Entry:
    """A contestant: its name in the table, the peer's module, its variant, and the Python interpreter that runs it.

    output_sample: see Job; kind: the name of the artifacts folder that it trains, None is the first; settings: see
    SimulatorJob and MaskedJob; hint: how to get what it may lack.
    """

    name: str
    peer: str
    variant: str = ""
    python: str = sys.executable
    output_sample: int | None = None
    kind: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    hint: str = ""

    @property
    def reduced(self) -> bool:
        """Whether it computes in less than float32, so that its loss is expected to differ."""
        return "bf16" in self.variant


@dataclass(frozen=True)
class Turn:
    """One step: its seconds, also by phase if it tells, its loss (None if it has none), and the process's peak memory
    after it.
    """

    seconds: float
    loss: float | None
    phases: Mapping[str, float]
    peak_rss_bytes: int


def selected_entries(
    backends: Sequence[str], variants: Sequence[str] = (), precisions: Sequence[str] = ("fp32",)
) -> list[Entry]:
    """The contestants in the order of `backends`: torch once for each variant, native once for each precision."""
    entries = []
    for backend in backends:
        if backend == "torch":
            entries += [Entry(f"torch {variant}", TORCH, variant) for variant in variants]
        elif backend == "native":
            entries += [
                Entry(name, OURS, name)
                for name in ("native" if precision == "fp32" else f"native {precision}" for precision in precisions)
            ]
        else:
            entries.append(Entry(backend, OURS, backend))
    return entries


def with_output_sample(entries: Sequence[Entry], output_sample: int) -> list[Entry]:
    """Entries of phonograd's backends and torch, each with an output sample."""
    able = (entry for entry in entries if entry.peer in (OURS, TORCH))
    return [dataclasses.replace(entry, name=f"{entry.name} sampled", output_sample=output_sample) for entry in able]


def of_kind(entries: Sequence[Entry], kind: str) -> list[Entry]:
    """Backend native among the entries, at each of its precisions and output samples, with another kind of model."""
    ours = (entry for entry in entries if entry.peer == OURS and entry.variant.startswith("native"))
    return [dataclasses.replace(entry, name=f"{kind} {entry.name}", kind=kind) for entry in ours]


def worker_environment(threads: int) -> dict[str, str]:
    """What every contestant that takes steps has in its environment: MALLOC_SETTINGS, and `threads` threads."""
    counts = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
    return {**MALLOC_SETTINGS, **dict.fromkeys(counts, str(threads)), "TORCHINDUCTOR_COMPILE_THREADS": "1"}


class Worker(contextlib.AbstractContextManager["Worker"]):
    """A contestant's process, with the environment of this one and `variables`. The end of the block kills it.

    Raises BenchError if the process fails.
    """

    def __init__(
        self,
        entry: Entry,
        job: Job | AggregationJob | SimulatorJob | MaskedJob,
        variables: Mapping[str, str] = NONE,
    ):
        self.entry = entry
        self.loaded: Mapping[str, Any] = {}
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the worker
        line = ["-c", "import phonograd.bench.worker as w; w.main()", type(job).__name__]
        try:
            self._process = subprocess.Popen(
                [entry.python, *line, json.dumps(dataclasses.asdict(job))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                text=True,
                # The peer may run in another Python, which finds this project by its path.
                env={**os.environ, **variables, "PYTHONPATH": str(ROOT)},
            )
        except OSError as error:
            self._log.close()
            raise BenchError(f"bench: {entry.name}: {entry.python} cannot be run ({error.strerror})") from error

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            if pipe is not None:
                pipe.close()
        self._process.wait()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def left_out(self) -> str | None:
        """Wait until the contestant has loaded and stop it; returns why it can't run here, if it can't."""
        self.loaded = self.answer()
        reason: str | None = self.loaded.get("left_out")
        if reason is None:
            self._process.send_signal(signal.SIGSTOP)
        return reason

    def turn(self, window: int) -> Turn:
        """Run one step on a window while all other workers are stopped (SIGSTOP), so that no waiting thread spins."""
        assert self._process.stdin is not None
        self._process.send_signal(signal.SIGCONT)
        with contextlib.suppress(BrokenPipeError):  # the process died; the missing answer reports that
            self._process.stdin.write(f"{window}\n")
            self._process.stdin.flush()
        turn = Turn(**self.answer())
        self._process.send_signal(signal.SIGSTOP)
        return turn

    def answer(self) -> dict[str, Any]:
        """The next answer."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._fail()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        """End stdin, and wait until the process has ended by itself."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.send_signal(signal.SIGCONT)
        if self._process.wait() != 0:
            self._fail()

    def _fail(self) -> NoReturn:
        code = self._process.wait()
        self._log.seek(0)
        last = (self._log.read().strip().splitlines() or ["no output"])[-1]
        raise BenchError(f"bench: {self.entry.name} exited with code {code}: {last}")


def rotate(items: Sequence[Item], number: int) -> tuple[Item, ...]:
    """The items in a round's order: each round begins with another."""
    first = number % len(items)
    return (*items[first:], *items[:first])


def run_in_turn(
    entries: Sequence[Entry], rounds: int, run: Callable[[Entry], Answers], left_out: dict[str, str], say: Say
) -> dict[str, list[Answers]]:
    """The answers of `run` for each entry, in a fresh process each time, by its name.

    Who says that it can't run here goes to `left_out` with its reason, and does not run again.
    """
    runs: dict[str, list[Answers]] = {entry.name: [] for entry in entries}
    for number in range(rounds):
        for entry in rotate(entries, number):
            if entry.name in left_out:
                continue
            say(f"round {number + 1} of {rounds}: {entry.name}")
            answers = run(entry)
            if "left_out" in answers:
                left_out[entry.name] = "; ".join(filter(None, (answers["left_out"], entry.hint)))
            else:
                runs[entry.name].append(answers)
    return runs


def ratio_of(own: Sequence[Answers], first: Sequence[Answers], *keys: str) -> float:
    """Median over rounds of the sum under `keys`, divided by the first contestant's in the same round."""
    pairs = zip(own, first, strict=True)
    return float(statistics.median(sum(a[key] for key in keys) / sum(b[key] for key in keys) for a, b in pairs))
