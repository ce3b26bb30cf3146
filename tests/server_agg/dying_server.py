"""A server that dies at a chosen step: `python -m tests.server_agg.dying_server ARTIFACTS STATE PORT SETTINGS`.

SETTINGS: what differs from the defaults, as `settings_with` takes it, a JSON object.

Every line on stdin is one life, a number: of the step, counted from the start, at which the process kills itself with
SIGKILL; 0: it lives until somebody else does. On stdout come the life's process id and, once it is dead, `dead`; where
stdin ends, the life ends. Lives are forks of this process, which has imported all that a server needs, so that a
hundred of them take seconds.

A step lies before and after everything that changes the disk, or a store: synced, linked, renamed, deleted, cut,
committed, and in the middle of what is written of an upload; and around each part of a slow strategy's work.
"""

import contextlib
import itertools
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sqlalchemy.engine.default import DefaultDialect

from phonograd.device_runtime.formats.manifest import Artifacts, open_artifacts
from phonograd.server_agg.aggregation import next_model
from phonograd.server_agg.aggregation.privacy.accountant import PrivateRounds, privacy_spent
from phonograd.server_agg.http.receiving import Receiving
from phonograd.server_agg.listening import Listener
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.rounds.live_round import LiveRound
from phonograd.server_agg.server import serve
from phonograd.server_agg.storage import noise_keys
from phonograd.server_agg.storage.stores import ObjectStore
from phonograd.server_agg.storage.tables import Ending
from tests.server_agg.slow_models import Work, free_work
from tests.server_agg.workshop import settings_with

STEPS = (
    (os, "fsync"),
    (os, "link"),
    (os, "replace"),
    (os, "unlink"),
    (os, "ftruncate"),
    (DefaultDialect, "do_commit"),
    (next_model, "write_model"),
    (ObjectStore, "_do"),
    (Work, "part"),
)


@contextlib.contextmanager
def lives_of(
    artifacts: Artifacts, state: Path, changes: Mapping[str, object], port: int = 0, **process: Any
) -> Iterator[Any]:
    """A process of this program, whose stdin begins lives and whose stdout tells of them."""
    arguments = (artifacts.folder, state, port, json.dumps(changes))
    with subprocess.Popen(
        [sys.executable, "-m", "tests.server_agg.dying_server", *map(str, arguments)],
        **{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True} | process,
        cwd=Path(__file__).parents[2],
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
    ) as started:
        yield started


def dies_at(number: int) -> None:
    """Count the steps from here on, and die at step `number`."""
    steps = itertools.count(1)

    def step() -> None:
        if next(steps) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(function: Callable[..., Any]) -> Callable[..., Any]:
        def stepping(*arguments: Any, **named: Any) -> Any:
            step()
            result = function(*arguments, **named)
            step()
            return result

        return stepping

    for owner, name in STEPS:
        setattr(owner, name, around(getattr(owner, name)))
    store = Receiving._store

    def store_in_halves(self: Receiving, file: Any, data: bytearray) -> None:
        half = len(data) // 2
        for part in (data[:half], data[half:]):
            step()
            store(self, file, part)

    Receiving._store = store_in_halves  # type: ignore[method-assign]


def live(artifacts: Artifacts, state: Path, port: int, changes: dict[str, Any], number: int) -> None:
    same_noise()
    LiveRound.find_ending = ending_when_all_came
    dies_at(number)
    settings = settings_with(port=port, **changes)
    coordinator = Coordinator(artifacts, state, settings, slow_models=free_work())
    serve(coordinator, settings, Listener(settings), lambda _: None)


ending_of = LiveRound.find_ending


def ending_when_all_came(current: LiveRound) -> Ending | None:
    """A private round ends once all phones came, as others do: at its deadline, no two runs would have the same."""
    rules = current.aggregator.rules
    all_came = current.open_round.accepted >= rules.clients_per_round
    return "deadline" if current.aggregator.settings.private and all_came else ending_of(current)


def same_noise() -> None:
    """Draw the same key for every round of every run, so that private rounds make the same models as well."""
    noise_keys.secrets = SimpleNamespace(token_bytes=bytes)  # type: ignore[assignment]


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    artifacts = open_artifacts(Path(sys.argv[1]))
    state, port, changes = Path(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])
    strategy = settings_with(**changes).strategy
    for rounds in range(1, 4) if strategy.private else ():  # what takes longer than a life: it is remembered
        privacy_spent([PrivateRounds(strategy.sampling, strategy.noise_multiplier, rounds)], strategy.delta)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            live(artifacts, state, port, changes, int(line))
            os._exit(0)
        say(str(child))
        end_of(child)
        say("dead")


def end_of(child: int) -> None:
    """Wait until the child is dead; it is killed when stdin ends, the only thing that stdin has to say meanwhile."""
    death = os.pidfd_open(child)
    ready, _, _ = select.select([death, sys.stdin], [], [])
    if death not in ready:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(death)


if __name__ == "__main__":
    main()
