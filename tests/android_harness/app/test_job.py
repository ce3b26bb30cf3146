"""TrainingJob, with a scheduler played by the test: constraints, stopping, resuming, a state nobody can use."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.android_harness.app.jvm import Jvm
from tests.support.phone_command import Place
from tests.support.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.apk


class Phone:
    """The app's folders, and a scheduler that speaks to the job."""

    def __init__(self, folder: Path, jvm: Jvm, place: Place):
        self.files = folder / "no_backup" / "phonograd"
        self.update, self.state = self.files / "update.safetensors", self.files / "state"
        self.command = jvm.java("JobDrive", f"-Dphone={folder}")
        self.files.mkdir(parents=True)
        (folder / "lib").mkdir()
        (folder / "lib" / "libphonograd_phone.so").symlink_to(place.command)
        (self.files / "artifacts").symlink_to(place.artifacts.folder)
        (self.files / "user.txt").symlink_to(place.user)

    @contextmanager
    def app(self) -> Iterator[Callable[[str], None]]:
        """The running app: a function that sends the scheduler a command. At the end it must leave by itself."""
        self.said: list[str] = []
        pipe = subprocess.PIPE
        with subprocess.Popen(self.command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            self.pid = process.pid

            def tell(command: str) -> None:
                process.stdin.write(command + "\n")
                process.stdin.flush()

            yield tell
            process.stdin.close()
            self.said = process.stdout.read().splitlines()
            assert process.wait(PATIENCE_SECONDS) == 0

    def train(self) -> list[str]:
        """Start a job and let it end: what was said."""
        with self.app() as tell:
            tell("create")
            tell("start")
        return self.said

    def train_and_stop(self) -> None:
        """Start a job, and stop it once a step's state is on disk."""
        with self.app() as tell:
            tell("create")
            tell("start")
            self.await_state()
            tell("stop")

    def trainer(self) -> int:
        """The process that trains."""
        tasks = Path(f"/proc/{self.pid}/task").glob("*/children")
        (child,) = [int(child) for task in tasks for child in task.read_text().split()]
        return child

    def await_state(self) -> None:
        """Wait until a step's state is on disk."""
        until(lambda: any(self.state.glob("*")), "a state")


@pytest.fixture
def phone(jvm: Jvm, place: Place, tmp_path: Path) -> Phone:
    return Phone(tmp_path, jvm, place)


def test_when_it_runs(phone: Phone) -> None:
    with phone.app() as tell:
        tell("create")
        tell("schedule")
        tell("schedule as 7")
    when = "JobDrive charging=true idle=true persisted=true"
    assert phone.said == [f"job 140 {when}", "scheduled true", f"job 7 {when}", "scheduled true"]


def test_an_undisturbed_epoch(phone: Phone, reference: bytes) -> None:
    assert phone.train() == [
        "started true",
        f"report {len(reference)}",
        "log phonograd training: FINISHED, exit code 0",
        "finished 1 false",
    ]
    assert phone.update.read_bytes() == reference
    assert not any(phone.state.glob("*"))


def test_nothing_to_train_on(phone: Phone) -> None:
    phone.update.write_bytes(b"not yet uploaded")
    assert phone.train() == ["started false"]


def test_stopped_and_started_again(phone: Phone, reference: bytes) -> None:
    """Android may start a new service while the old one's epoch is still being saved: it waits, and goes on."""
    with phone.app() as tell:
        tell("create")
        tell("start")
        phone.await_state()
        trainer = phone.trainer()
        os.kill(trainer, signal.SIGSTOP)
        for command in ("stop", "destroy", "create", "start"):
            tell(command)
        time.sleep(5)  # a second trainer would wait 3 seconds for the state, and be refused
        os.kill(trainer, signal.SIGCONT)
    assert phone.said == [
        "started true",
        "stopped true",
        "destroyed",
        "started true",
        "log phonograd training: INTERRUPTED, exit code 143",
        f"report {len(reference)}",
        "log phonograd training: FINISHED, exit code 0",
        "finished 2 false",  # of the stopped one Android hears nothing more
    ]
    assert phone.update.read_bytes() == reference


def test_the_app_killed(phone: Phone, reference: bytes) -> None:
    phone.train_and_stop()
    assert not phone.update.exists()
    phone.train()
    assert phone.update.read_bytes() == reference


def test_a_damaged_state(phone: Phone, reference: bytes) -> None:
    phone.train_and_stop()
    for file in phone.state.iterdir():
        file.write_bytes(b"damaged")
    assert phone.train() == [
        "started true",
        "log phonograd training: STATE_REFUSED, exit code 17",
        f"report {len(reference)}",
        "log phonograd training: FINISHED, exit code 0",
        "finished 1 false",
    ]
    assert phone.update.read_bytes() == reference


def test_no_binary(phone: Phone) -> None:
    (phone.files.parent.parent / "lib" / "libphonograd_phone.so").unlink()
    started, log, finished = phone.train()
    assert (started, finished) == ("started true", "finished 1 false")
    assert log.startswith("log phonograd training did not start: java.io.FileNotFoundException: ")


def test_a_text_that_cannot_be_trained_on(phone: Phone) -> None:
    (phone.files / "user.txt").unlink()
    (phone.files / "user.txt").write_text("secret\n")
    assert phone.train() == ["started true", "log phonograd training: FAILED, exit code 3", "finished 1 false"]
    assert "secret" not in "\n".join(phone.said)
