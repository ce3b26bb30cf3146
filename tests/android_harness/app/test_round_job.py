"""RoundJob, with a scheduler played by the test: what it asks of Android, and that it stops."""

import socket
import subprocess
from pathlib import Path

import pytest

from tests.android_harness.app.job_phone import Phone
from tests.android_harness.app.jvm import Jvm
from tests.android_harness.app.round_phones import serving
from tests.support.phone_command import Place
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.apk

NETWORK = "RoundJobDrive charging=true network=2 after={} persisted=true"


def app(jvm: Jvm, place: Place, folder: Path, url: str) -> "subprocess.Popen[str]":
    Phone(folder, jvm, place)
    line = jvm.java("RoundJobDrive", f"-Dphone={folder}", f"-Dserver={url}")
    return subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def tell(process: "subprocess.Popen[str]", command: str) -> None:
    assert process.stdin is not None
    process.stdin.write(command + "\n")
    process.stdin.flush()


def test_it_schedules_the_training_and_itself(jvm: Jvm, place: Place, tmp_path: Path) -> None:
    said: list[str] = []
    with serving(place, tmp_path) as server, app(jvm, place, tmp_path, server.url) as process:
        assert process.stdout is not None
        for start in (1, 2):
            tell(process, "start")
            while not said or said[-1] != f"finished {start} false":
                said.append(process.stdout.readline().rstrip("\n"))
    came = ("log phonograd round: TRAIN after 21600 s", "job 141 " + NETWORK.format(21_600_000))
    training = "job 140 JobDrive charging=true idle=true persisted=true"
    assert [line for line in said if line != "started true"] == [
        *(came[0], training, came[1], "finished 1 false"),
        *(*came, "finished 2 false"),  # a training that is there is left alone
    ]


def test_it_stops_what_it_waits_for(jvm: Jvm, place: Place, tmp_path: Path) -> None:
    """A server that never answers: the thread ends, and Android hears no more of the job."""
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        app(jvm, place, tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}") as process,
    ):
        tell(process, "start")
        with silent.accept()[0] as connection:
            assert connection.recv(1 << 16).startswith(b"GET /v1/round ")
            said, _ = process.communicate("stop\n", timeout=PATIENCE_SECONDS)
    assert sorted(said.splitlines()) == ["log phonograd round: NETWORK after 300 s", "started true", "stopped true"]
