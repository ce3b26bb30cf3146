"""Folds and simulations in Ray are those of one process, also when workers are killed."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
import ray

import phonograd
from phonograd.adapters.ray import cluster as clusters
from phonograd.adapters.ray.cluster import cluster, result
from phonograd.adapters.ray.workers import RayWorkers
from phonograd.simulation.phone import PhoneJob
from phonograd.simulation.records import RoundRecord
from tests.adapters.places import GENERAL, USERS, Descendants, Workshop, kill_workers
from tests.support.waiting import until

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("descendants")]


def test_more_workers_than_updates_write_the_same_file(workshop: Workshop, tmp_path: Path) -> None:
    here = phonograd.fold_updates(workshop.updates, workshop.artifacts, tmp_path / "here")
    there = phonograd.fold_updates(workshop.updates, workshop.artifacts, tmp_path / "there", engine="ray", workers=6)
    assert there == here


def test_killed_workers_change_no_fold(workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = phonograd.fold_updates(workshop.updates, workshop.artifacts, tmp_path / "here")
    module = "phonograd.server_agg.aggregation.fold"
    kills = kill_workers(monkeypatch, tmp_path, module, "Fold", "accumulate", "merge")
    there = phonograd.fold_updates(workshop.updates, workshop.artifacts, tmp_path / "there", engine="ray", workers=3)
    assert kills.done
    assert there == here


def test_a_bad_update_is_the_same_error(workshop: Workshop, tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.write_bytes(workshop.updates[0].read_bytes()[:-1])
    for engine in ("local", "ray"):
        with pytest.raises(phonograd.UpdateError, match="bad: "):
            phonograd.fold_updates([*workshop.updates, bad], workshop.artifacts, tmp_path / "out", engine=engine)
    assert not (tmp_path / "out").exists()


def test_a_killed_fold_leaves_no_process(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, descendants: Descendants
) -> None:
    """The fold's worker sleeps over its first update; the fixture sees it end."""
    asleep = kill_workers(monkeypatch, tmp_path, "phonograd.server_agg.aggregation.fold", "Fold", "accumulate")
    monkeypatch.setenv("SLEEPS", "1")
    line = [sys.executable, "-m", "phonograd", "fold", workshop.artifacts.folder, *workshop.updates]
    line += ["--out", tmp_path / "out", "--engine", "ray", "--workers", "1", "--quiet"]
    with tempfile.TemporaryDirectory(prefix="pg-") as place:  # Ray's files, which stay
        process = subprocess.Popen([*map(str, line)], env=os.environ | {"TMPDIR": place})
        until(lambda: asleep.done or process.poll() is not None)  # its title is not always seen
        assert asleep.done
        process.kill()
        assert process.wait() == -signal.SIGKILL
        until(lambda: not descendants.running_lines())


def test_work_that_kills_every_worker_is_an_error() -> None:
    """Work that needs its result is an error too."""
    with cluster(1):
        dead = ray.remote(max_retries=0)(lambda: os.kill(os.getpid(), signal.SIGKILL)).remote()
        for reference in (dead, ray.remote(lambda result: result).remote(dead)):
            with pytest.raises(phonograd.OutOfMemoryError, match="workers were killed 11 times"):
                result(reference)


SETTINGS = phonograd.SimulationSettings(rounds=2, clients_per_round=3, text_bytes=150, test_users=1, seed=5)


def rounds(workshop: Workshop, out: Path, **options: object) -> list[RoundRecord]:
    """What a simulation recorded, times left out."""
    record = phonograd.simulate(
        workshop.artifacts, USERS, out, SETTINGS, rehearsal=GENERAL, general_test=GENERAL[:20], **options
    )
    return [msgspec.structs.replace(ended, seconds=0, train_seconds=0) for ended in record.rounds]


def test_killed_workers_change_no_simulation(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = rounds(workshop, tmp_path / "here", workers=1)
    kills = kill_workers(monkeypatch, tmp_path, "phonograd.simulation.phone", "VirtualPhone", "train", "evaluate")
    monkeypatch.chdir(tmp_path)
    assert rounds(workshop, Path("there"), workers=2, engine="ray") == here
    assert kills.done


def test_a_phones_error_is_the_same(workshop: Workshop, tmp_path: Path) -> None:
    text = [message.encode() for message in USERS["user-0"]]
    job = PhoneJob("user-0", text, 1, tmp_path / "absent", "0" * 64, 0, tmp_path / "update")
    expected = pytest.raises(phonograd.WeightsError, match=r"^\S+absent: cannot be opened: \S+")
    with RayWorkers(1, workshop.artifacts, [], SETTINGS) as workers, expected:
        list(workers.train([job]))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it(workshop: Workshop, tmp_path: Path, number: signal.Signals) -> None:
    users = tmp_path / "users"
    users.mkdir()
    for user, text in USERS.items():
        (users / f"{user}.txt").write_text("\n".join(text))
    line = [sys.executable, "-m", "phonograd", "simulate", workshop.artifacts.folder, "--users", users, "--rounds"]
    line += ["100000", "--clients-per-round", "3", "--set", "evaluation.test_users=0", "--out", tmp_path / "out"]
    command = [*map(str, line), "--set", "engine=ray", "--workers", "2", "--quiet"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    until(lambda: [*(tmp_path / "out/models").glob("2.*")] or process.poll() is not None)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as Ctrl-C: Ray's processes get it too
    else:
        process.send_signal(number)
    _, said = process.communicate()
    assert process.returncode == 128 + number, said
    assert said.startswith("phonograd: interrupted in round") and said.count("\n") == 1


def test_an_address_without_a_cluster_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))  # nobody listens
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", address)
        monkeypatch.setattr(clusters.ray, "init", None)  # not asked
        message = f"RAY_ADDRESS {address}: a Ray cluster expected, found none .*refused.*unset RAY_ADDRESS"
        with pytest.raises(phonograd.ServerUnreachableError, match=message), cluster(1):
            pass


@pytest.mark.parametrize("failures", [2, 3])
def test_a_slow_start_is_tried_again(monkeypatch: pytest.MonkeyPatch, failures: int) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    begun: list[str] = []

    def init(*_: object, **__: Any) -> None:
        begun.append("start")
        if len(begun) <= failures:
            raise Exception("The current node timed out during startup.")  # as Ray does

    monkeypatch.setattr(clusters.ray, "init", init)
    if failures < clusters.STARTS:
        with cluster(1):
            assert len(begun) == failures + 1
        return
    expected = pytest.raises(phonograd.ServerUnreachableError, match="in 3 attempts .The current node timed out")
    with expected, cluster(1):
        pass
    assert len(begun) == clusters.STARTS
