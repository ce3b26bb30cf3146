"""A simulation in Ray is a simulation in processes of this machine, also when workers are killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import phonograd
from phonograd.adapters.ray.workers import RayWorkers
from phonograd.simulation.phone import PhoneJob
from phonograd.simulation.records import RoundRecord
from tests.adapters.places import GENERAL, USERS, Workshop, kill_workers
from tests.support.waiting import until

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("descendants")]
SETTINGS = phonograd.SimulationSettings(rounds=2, clients_per_round=3, text_bytes=150, test_users=1, seed=5)


def rounds(workshop: Workshop, out: Path, **options: object) -> list[RoundRecord]:
    """What a simulation recorded, times left out."""
    record = phonograd.simulate(
        workshop.artifacts, USERS, out, SETTINGS, rehearsal=GENERAL, general_test=GENERAL[:20], **options
    )
    return [msgspec.structs.replace(ended, seconds=0, train_seconds=0) for ended in record.rounds]


def test_killed_workers_change_nothing(workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    line += ["100000", "--clients-per-round", "3", "--test-users", "0", "--out", tmp_path / "out", "--engine", "ray"]
    command = [*map(str, line), "--workers", "2", "--quiet"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    until(lambda: [*(tmp_path / "out/models").glob("2.*")] or process.poll() is not None)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as Ctrl-C: Ray's processes get it too
    else:
        process.send_signal(number)
    _, said = process.communicate()
    assert process.returncode == 128 + number, said
    assert said.startswith("phonograd: interrupted in round") and said.count("\n") == 1
