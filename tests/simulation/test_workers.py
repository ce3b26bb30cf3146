"""However many workers train, and in whatever order phones end, a simulation is the same."""

import dataclasses
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

import phonograd
from phonograd.device_runtime.base.errors import OutOfMemoryError, PhonogradError, StoppedError, TextError
from phonograd.device_runtime.formats.manifest import WEIGHTS
from phonograd.server_agg.aggregation.strategies import strategy_of
from phonograd.server_agg.aggregation.strategies.averaging import Averaging
from phonograd.simulation.phone import EvaluationJob, PhoneJob, PhoneResult
from phonograd.simulation.simulator import Simulation, Texts
from phonograd.simulation.workers import Workers, start_workers
from tests.simulation.test_simulation import ARTIFACTS, GENERAL, SETTINGS, comparable, encoded_users, run
from tests.support.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.long  # each starts processes that import all of it


def test_any_number_of_workers_gives_the_same_record(tmp_path: Path) -> None:
    unreliable = replace(SETTINGS, drop_outs=0.2, late_phones=0.3, late="next", duplicates=0.5, kss=True)
    assert comparable(run(tmp_path / "1", unreliable, 1)) == comparable(run(tmp_path / "2", unreliable, 2))


def test_the_order_in_which_phones_end_is_of_no_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    median = phonograd.StrategySettings(strategy="median")
    # So that it matters which come first.
    monkeypatch.setattr(strategy_of(median).aggregation, "max_updates", 2)
    unreliable = replace(SETTINGS, strategy=median, late_phones=0.3, late="next", duplicates=0.5)
    expected = comparable(run(tmp_path / "in order", unreliable))

    class LastFirst:
        count = 1

        def __init__(self, workers: Workers):
            self.evaluate = workers.evaluate
            self._workers = workers

        def __enter__(self) -> "LastFirst":
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def train(self, jobs: Iterable[PhoneJob]) -> Iterator[PhoneResult]:
            return reversed(list(self._workers.train(jobs)))

    def start(*arguments: Any) -> Workers:
        return LastFirst(start_workers(*arguments))

    texts = Texts(encoded_users(), *([line.encode() for line in lines] for lines in (GENERAL, GENERAL[:50])))
    with Simulation(ARTIFACTS, texts, unreliable, tmp_path / "reversed", 1, start) as simulation:
        assert comparable(simulation.run()) == expected


def test_the_server_adds_updates_while_later_phones_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events, take = [], Averaging.take

    def add_and_note(*arguments: Any) -> Any:
        events.append("added")
        return take(*arguments)

    monkeypatch.setattr(Averaging, "take", add_and_note)
    settings, general = replace(SETTINGS, rounds=1), [line.encode() for line in GENERAL]
    with Simulation(ARTIFACTS, Texts(encoded_users(), general, []), settings, tmp_path / "out", 1) as simulation:
        simulation.run(progress=lambda *_: events.append("trained"))
    assert events[:8] == ["trained", "added"] * 4


def test_few_phones_are_in_memory_at_a_time(tmp_path: Path) -> None:
    base, asked = ARTIFACTS.path("weights.safetensors"), []

    def jobs() -> Iterator[PhoneJob]:
        for place in range(20):
            asked.append(place)
            yield PhoneJob(
                "user", encoded_users()["user-1"], 1, base, ARTIFACTS.weights_sha256, 0, tmp_path / f"{place}"
            )

    with start_workers(2, ARTIFACTS, [], SETTINGS) as workers:
        assert all(len(asked) <= done + 5 for done, _ in enumerate(workers.train(jobs())))
    assert len(asked) == 20


def test_ctrl_c_while_workers_start_is_the_parents_alone() -> None:
    """A new Python that imports would answer it with a traceback."""
    users = [messages[:9] for messages in encoded_users().values()][:2]
    with start_workers(2, ARTIFACTS, [], SETTINGS) as workers:
        workers.evaluate([EvaluationJob(ARTIFACTS.path(WEIGHTS), messages) for messages in users])
        for process in cast(Any, workers)._pool._processes:
            status = Path(f"/proc/{process}/status").read_text("ascii")
            held = int(next(line.split()[1] for line in status.splitlines() if line.startswith("SigBlk")), 16)
            assert held >> (signal.SIGINT - 1) & 1


STARTED = """
import time
from phonograd.device_runtime.formats.manifest import WEIGHTS
from phonograd.simulation.phone import EvaluationJob
from phonograd.simulation.workers import start_workers
from tests.simulation.test_simulation import ARTIFACTS, SETTINGS, encoded_users
with start_workers(2, ARTIFACTS, [], SETTINGS) as workers:
    workers.evaluate([EvaluationJob(ARTIFACTS.path(WEIGHTS), messages[:9]) for messages in encoded_users().values()])
    print(*workers._pool._processes, flush=True)
    time.sleep(600)
"""


def test_workers_end_with_a_parent_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", STARTED], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        workers = [Path(f"/proc/{number}/stat") for number in parent.stdout.readline().split()]
        assert len(workers) == 2 and all(map(runs, workers))
        parent.kill()
    until(lambda: not any(map(runs, workers)), "the workers' end")


def test_an_error_does_not_wait_for_the_phones_that_train(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    base = ARTIFACTS.path(WEIGHTS), ARTIFACTS.weights_sha256
    job = PhoneJob("user", encoded_users()["user-1"], 1, *base, 0, tmp_path / "update")
    endless = replace(SETTINGS, epochs=10**6)
    waited = threading.Event()

    def give_up(processes: set[BaseProcess]) -> None:
        waited.set()
        for process in processes:
            process.kill()

    with pytest.raises(TextError), start_workers(2, ARTIFACTS, [], endless) as workers:
        timer = threading.Timer(PATIENCE_SECONDS, give_up, [cast(Any, workers)._processes])
        timer.start()
        list(workers.train([job, dataclasses.replace(job, messages=[])]))
    timer.cancel()
    assert not waited.is_set()
    assert capfd.readouterr().err == ""


def runs(process: Path) -> bool:
    """Whether it is there, and more than an exit code that nobody has read."""
    try:
        return process.read_text("utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("number", "kind", "message"),
    [
        (signal.SIGKILL, OutOfMemoryError, "killed by SIGKILL, most likely for lack of memory"),
        (signal.SIGTERM, StoppedError, "ended by SIGTERM; run"),
    ],
)
def test_a_worker_that_a_signal_ends(
    tmp_path: Path, number: signal.Signals, kind: type[PhonogradError], message: str
) -> None:
    base = ARTIFACTS.path("weights.safetensors")
    jobs = (
        PhoneJob("user", encoded_users()["user-1"], 1, base, ARTIFACTS.weights_sha256, 0, tmp_path / f"{place}")
        for place in range(1000)
    )
    with start_workers(2, ARTIFACTS, [], SETTINGS) as workers:
        results = workers.train(jobs)
        next(results)
        os.kill(cast(int, multiprocessing.active_children()[0].pid), number)
        with pytest.raises(kind, match=message) as ended:
            list(results)
    assert ended.value.exit_code == (26 if number == signal.SIGKILL else 128 + number)
