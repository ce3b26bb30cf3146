"""Starts the contestants' processes of `bench epoch` and gives them turns; they are stopped between their turns."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any

from phonograd.bench.measuring import MALLOC_SETTINGS
from phonograd.bench.worker import Job
from phonograd.device_runtime.base.errors import PhonogradError

ROOT = Path(__file__).parents[2]

NO_PYTHONS: Mapping[str, str] = MappingProxyType({})
OURS = "phonograd.bench.peers.backend"
TORCH = "phonograd.bench.peers.pytorch"
OWN_PYTHON = ("executorch", "jax", "litert")  # peers that no extra installs: each runs in an environment of its own
PEERS = ("native", "ort", "torch", *OWN_PYTHON)
TORCH_VARIANTS = ("eager", "sparse", "compiled", "bf16")


class BenchError(PhonogradError):
    """A contestant of a benchmark failed, or the contestants' results differ."""

    exit_code = 16


@dataclass(frozen=True)
class Entry:
    """A contestant: its name in the table, the peer's module, its variant, and the Python interpreter that runs it.

    output_sample: see Job; kind: the name of the artifacts folder that it trains, None is the first.
    """

    name: str
    peer: str
    variant: str = ""
    python: str = sys.executable
    output_sample: int | None = None
    kind: str | None = None

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
    backends: Sequence[str],
    variants: Sequence[str] = (),
    precisions: Sequence[str] = ("fp32",),
    pythons: Mapping[str, str] = NO_PYTHONS,
) -> list[Entry]:
    """The contestants in the order of `backends`: torch once for each variant, native once for each precision.

    pythons: interpreters by the names of peers in OWN_PYTHON; this one runs those without.
    """
    entries = []
    for backend in backends:
        if backend == "torch":
            entries += [Entry(f"torch {variant}", TORCH, variant) for variant in variants]
        elif backend == "native":
            entries += [
                Entry(name, OURS, name)
                for name in ("native" if precision == "fp32" else f"native {precision}" for precision in precisions)
            ]
        elif backend in OWN_PYTHON:
            python = pythons.get(backend, sys.executable)
            entries.append(Entry(backend, f"phonograd.bench.peers.{backend}", python=python))
        else:
            entries.append(Entry(backend, OURS, backend))
    return entries


def sampled(entries: Sequence[Entry], output_sample: int) -> list[Entry]:
    """Those of the entries that can have an output sample, phonograd's backends and torch, each with one."""
    able = (entry for entry in entries if entry.peer in (OURS, TORCH))
    return [dataclasses.replace(entry, name=f"{entry.name} sampled", output_sample=output_sample) for entry in able]


def of_kind(entries: Sequence[Entry], kind: str) -> list[Entry]:
    """Backend native among the entries, at each of its precisions and output samples, with another kind of model."""
    ours = (entry for entry in entries if entry.peer == OURS and entry.variant.startswith("native"))
    return [dataclasses.replace(entry, name=f"{kind} {entry.name}", kind=kind) for entry in ours]


def worker_environment(threads: int) -> dict[str, str]:
    """The environment of every contestant: MALLOC_SETTINGS, and every runtime on `threads` threads."""
    counts = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
    fixed = {**MALLOC_SETTINGS, **dict.fromkeys(counts, str(threads)), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    # The peer may run in another Python, which finds this project by its path.
    return {**os.environ, **fixed, "PYTHONPATH": str(ROOT)}


class Worker:
    """A contestant's process. It is stopped (SIGSTOP) between its turns, so that its waiting threads can't spin.

    Raises BenchError if the process fails. left_out: why the contestant can't run here, or None.
    """

    def __init__(self, entry: Entry, job: Job):
        self.entry = entry
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the worker
        try:
            self._process = subprocess.Popen(
                [
                    entry.python,
                    "-c",
                    "import phonograd.bench.worker as w; w.main()",
                    json.dumps(dataclasses.asdict(job)),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                text=True,
                env=worker_environment(job.threads),
            )
        except OSError as error:
            self._log.close()
            raise BenchError(f"bench: {entry.name}: {entry.python} cannot be run ({error.strerror})") from error
        self.left_out: str | None = None
        self.loaded: Mapping[str, Any] = {}

    def __enter__(self) -> "Worker":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            if pipe is not None:
                pipe.close()
        self._process.wait()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def wait_until_loaded(self) -> None:
        """Wait for the worker's first answer, and set `loaded` or `left_out` from it."""
        self.loaded = self._answer()
        self.left_out = self.loaded.get("left_out")
        if "failed" in self.loaded:
            raise BenchError(f"bench: {self.entry.name} cannot load the artifacts: {self.loaded['failed']}")
        if self.left_out is None:
            self._process.send_signal(signal.SIGSTOP)

    def turn(self, window: int) -> Turn:
        """Run one step on a window while all other workers are stopped."""
        assert self._process.stdin is not None
        self._process.send_signal(signal.SIGCONT)
        try:
            self._process.stdin.write(f"{window}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # the process died; the missing answer reports that
        turn = Turn(**self._answer())
        self._process.send_signal(signal.SIGSTOP)
        return turn

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            self._log.seek(0)
            last = (self._log.read().strip().splitlines() or ["no output"])[-1]
            raise BenchError(f"bench: {self.entry.name} exited with code {code}: {last}")
        answer: dict[str, Any] = json.loads(line)
        return answer
