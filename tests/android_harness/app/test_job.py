"""TrainingJob, with a scheduler played by the test: constraints, stopping, resuming, a state nobody can use."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.android_harness.app.job_phone import Phone
from tests.android_harness.app.jvm import Jvm
from tests.support.phone_command import Place

pytestmark = pytest.mark.apk


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
