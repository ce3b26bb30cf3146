"""One simulation in a process of its own. stdout: a line when its first round begins, and after each; then the result.

A peer may run in another Python environment, with NumPy and msgspec.
"""

import importlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

BEGAN = "began"
ENDED = "ended"


@dataclass(frozen=True)
class SimulatorJob:
    """The input of a peer (a module).

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


# Called when the first round begins, and after each round.
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Simulated:
    """What a peer's `run(job, tell)` returns. losses: of each round, nats a token in a phone's last step, the mean."""

    losses: tuple[float, ...]
    versions: Mapping[str, str]


def main() -> None:
    """Entry point: the job as JSON in the first argument."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # libraries may print to stdout, which is only for the answer
    sys.stdout = sys.stderr

    def say(line: str) -> None:
        print(line, file=answers, flush=True)

    job = SimulatorJob(**json.loads(sys.argv[1]))
    try:
        peer = importlib.import_module(job.peer)
    except ImportError as error:
        say(json.dumps({"left_out": str(error)}))
        return
    found: Simulated = peer.run(job, say)
    say(json.dumps({"losses": found.losses, "versions": dict(found.versions)}))
