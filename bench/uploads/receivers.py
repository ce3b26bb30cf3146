"""The receiving processes: `phonograd serve`, the bare handler, the copy. Each is stopped at the end of its block."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from phonograd.bench.contestants import ROOT, BenchError

STOP_SECONDS = 20


@dataclass(frozen=True)
class Receiver:
    """A process that listens on loopback."""

    pid: int
    port: int


@contextlib.contextmanager
def phonograd_serve(
    artifacts: Path, state: Path, clients_per_round: int, *more: str, profiled: Path | None = None
) -> Iterator[Receiver]:
    """The server as a user starts it, with `more` options. Raises BenchError with its last line if it fails.

    profiled: where it writes what it counts, of one that does (phonograd.bench.capacity.profiled_server).
    """
    options = ("--artifacts", artifacts, "--state", state, "--clients-per-round", clients_per_round, "--port", 0)
    line = ["-m", "phonograd"]
    if profiled is not None:
        line = ["-c", "import phonograd.bench.capacity.profiled_server as p; p.main()", str(profiled)]
    line += ["serve", "--json", *map(str, options), *more]
    with _start("phonograd serve", line, state.with_suffix(".log")) as one:
        yield one


@contextlib.contextmanager
def bare_handler(folder: Path, *, sync: bool) -> Iterator[Receiver]:
    """See phonograd.bench.uploads.bare_server; creates `folder`."""
    folder.mkdir()
    code = ["-c", "import phonograd.bench.uploads.bare_server as b; b.main()", str(folder), *(["sync"] if sync else [])]
    with _start("the bare handler", code, folder.with_suffix(".log")) as one:
        yield one


@contextlib.contextmanager
def plain_copy(folder: Path) -> Iterator[Receiver]:
    """See phonograd.bench.uploads.copy_server; creates `folder`."""
    folder.mkdir()
    code = ["-c", "import phonograd.bench.uploads.copy_server as c; c.main()", str(folder)]
    with _start("the copy", code, folder.with_suffix(".log")) as one:
        yield one


@contextlib.contextmanager
def _start(name: str, arguments: Sequence[str], log: Path) -> Iterator[Receiver]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [sys.executable, *arguments], stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
        ) as process,
    ):
        assert process.stdout is not None
        try:
            ready = process.stdout.readline()
            if not ready:
                last = (log.read_text("utf-8").strip().splitlines() or ["no output"])[-1]
                raise BenchError(f"bench: {name} exited with code {process.wait()}: {last}")
            said = json.loads(ready)
            yield Receiver(process.pid, int(said.get("port") or said["url"].rpartition(":")[2]))
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
