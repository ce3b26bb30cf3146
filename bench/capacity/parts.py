"""Where a phone's time at a server goes: a server that counts it, under phones that take part in its rounds."""

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from phonograd.bench.capacity.rounds_of_phones import PhonesRun, run_phones
from phonograd.bench.contestants import BenchError, Say
from phonograd.bench.uploads.receivers import Receiver, phonograd_serve

EVENT_LOOP, HASH, DECODING = "HTTP: the event loop", "receiving: hash", "decoding, checking and folding"
DISK, LEDGER, MAKING, REST = (
    "files: write, sync, link",
    "ledger: transactions",
    "making the model",
    "all else, in other threads too",
)
PARTS = (EVENT_LOOP, HASH, DECODING, DISK, LEDGER, MAKING, REST)
SECONDS = 10.0  # to tell


@dataclass(frozen=True)
class Part:
    """A part of the server's work for one phone, in seconds. cpu: of its thread; wall: of the clock, with what it waits
    for, such as the disk or its turn; 0 where there is no such thing.
    """

    name: str
    cpu: float
    wall: float


def measure_parts(
    artifacts: Path, updates: Sequence[Path], state: Path, model: str, phones: int, rounds: int, at_once: int, say: Say
) -> tuple[Part, ...]:
    """The parts of a phone's time at a server of its own, as `run_phones` runs it. Raises BenchError."""
    counted: list[Mapping[str, Sequence[float]]] = []

    @contextlib.contextmanager
    def counting(*arguments: object, **named: object) -> Iterator[Receiver]:
        out = state.with_suffix(".parts")
        with phonograd_serve(*arguments, profiled=out, **named) as server:  # type: ignore[arg-type]
            counted.append(_read_counters(server.pid, out))
            yield server
            counted.append(_read_counters(server.pid, out))

    run: PhonesRun = run_phones(artifacts, updates, state, model, phones, rounds, at_once, say, serve=counting)
    before, after = counted
    return parts_of(before, after, run.phones)


def parts_of(
    before: Mapping[str, Sequence[float]], after: Mapping[str, Sequence[float]], phones: int
) -> tuple[Part, ...]:
    """What was counted between two times, of one phone. REST: of the whole process's CPU time, what no part has."""
    cpu, wall = (
        {name: (values[way] - before.get(name, (0.0, 0.0))[way]) / phones for name, values in after.items()}
        for way in (0, 1)
    )
    cpu[REST] = cpu[""] - sum(cpu.get(name, 0.0) for name in PARTS[:-1])
    return tuple(Part(name, cpu.get(name, 0.0), wall.get(name, 0.0)) for name in PARTS)


def _read_counters(pid: int, out: Path) -> Mapping[str, Sequence[float]]:
    out.unlink(missing_ok=True)
    os.kill(pid, signal.SIGUSR1)
    until = time.monotonic() + SECONDS
    while not out.exists():
        if time.monotonic() > until:
            raise BenchError(f"bench: {out}: the server's times expected within {SECONDS:g} s, found none")
        time.sleep(0.01)
    told: Mapping[str, Sequence[float]] = json.loads(out.read_text())
    return told
