"""PhonogradProcess on a JVM: events, exit codes, cancelling and resuming, and hostile output."""

from pathlib import Path

import pytest

from phonograd import __version__
from phonograd.device_runtime.base.files import sha256_of_file
from tests.android_harness.app.conftest import STEPS, Script
from tests.android_harness.app.jvm import Heard, Jvm
from tests.support.phone_command import Place

pytestmark = pytest.mark.apk

NOWHERE = tuple(Path(name) for name in ("artifacts", "user", "update", "state"))


def test_an_epoch(jvm: Jvm, place: Place, reference: bytes, tmp_path: Path) -> None:
    update, state = tmp_path / "update", tmp_path / "state"
    heard = jvm.drive("never", place.command, place.artifacts.folder, place.user, update, state)
    version, steps, resumed_at, load = heard.only("started")
    assert (version, steps, resumed_at) == (__version__, str(STEPS), "0")
    assert float(load) > 0
    assert [words[:2] for words in heard.all("step")] == [(str(n + 1), str(STEPS)) for n in range(STEPS)]
    assert len(heard.all("saved")) == STEPS // 5 - 1
    report = heard.only("report")
    diagnosis = [float(words[2]) for words in heard.all("step")]
    assert (report[0], report[1]) == (str(STEPS), str(STEPS * 15))
    assert (float(report[2]), float(report[3])) == (diagnosis[0], diagnosis[-1])
    assert int(report[5]) > 1 << 20
    assert report[6:] == (str(update), str(len(reference)), sha256_of_file(update))
    assert update.read_bytes() == reference
    assert heard.only("ended") == ("FINISHED", "0", "0", "true")
    ended_clean(heard)


def test_cancelled_in_mid_epoch_and_resumed(jvm: Jvm, place: Place, reference: bytes, tmp_path: Path) -> None:
    update, state = tmp_path / "update", tmp_path / "state"
    files = (place.artifacts.folder, place.user, update, state)
    heard = jvm.drive("7", place.command, *files)
    # The event after the signal was heard: the pipe was not closed before the state was saved.
    step, steps, saved = heard.only("interrupted")
    assert (7 <= int(step) < STEPS, steps, saved) == (True, str(STEPS), "true")
    assert heard.only("ended") == ("INTERRUPTED", "143", "0", "false")
    assert not update.exists()
    ended_clean(heard)
    again = jvm.drive("never", place.command, *files)
    assert again.only("started")[2] == step
    assert again.only("ended")[0] == "FINISHED"
    assert update.read_bytes() == reference


def test_cancelled_at_once(jvm: Jvm, place: Place, tmp_path: Path) -> None:
    files = (place.artifacts.folder, place.user, tmp_path / "update", tmp_path / "state")
    heard = jvm.drive("at-once", place.command, *files)
    assert heard.only("ended")[:2] == ("INTERRUPTED", "143")
    ended_clean(heard)


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (0, "FAILED"),  # without a report
        (3, "FAILED"),
        (11, "TRY_LATER"),
        (17, "STATE_REFUSED"),
        (26, "TRY_LATER"),
        (130, "INTERRUPTED"),
        (137, "TRY_LATER"),
    ],
)
def test_exit_codes(jvm: Jvm, script: Script, code: int, outcome: str) -> None:
    heard = jvm.drive("never", script(f"echo 'phonograd-phone: what went wrong' >&2; exit {code}"), *NOWHERE)
    assert heard.only("ended") == (outcome, str(code), "0", "false")
    assert heard.only("message") == ("phonograd-phone: what went wrong",)


def test_a_process_that_ignores_sigterm(jvm: Jvm, script: Script) -> None:
    heard = jvm.drive("at-once", script("trap '' TERM; while :; do sleep 0.05; done"), *NOWHERE, grace=1)
    assert heard.only("ended")[:2] == ("TRY_LATER", "137")
    ended_clean(heard)


def test_stdout_closed_while_it_lives(jvm: Jvm, script: Script) -> None:
    heard = jvm.drive("at-once", script("exec >&-; exec sleep 100"), *NOWHERE)
    assert heard.only("ended")[:2] == ("INTERRUPTED", "143")
    ended_clean(heard)


def test_hostile_output(jvm: Jvm, script: Script) -> None:
    """Lines that are no events are counted, the good ones among them heard, and nothing is kept that grows."""
    body = r"""
echo 'not JSON'
echo
echo '[1, 2]'
echo '{}'
echo '{"event": "step", "step": "many", "steps": 2, "loss": 1, "seconds": 1}'
echo '{"event": "report", "steps": 2}'
printf '\377\376\000\n'
head -c 100000000 /dev/zero | tr '\0' 'x'; echo
head -c 500000 /dev/zero | tr '\0' '['; echo
echo '{"event": "of a later version", "what": [1]}'
echo '{"event": "saved", "step": 4, "nbytes": 5, "seconds": 6, "more": {}}'
head -c 100000000 /dev/zero | tr '\0' 'e' >&2
echo ' the end' >&2
printf '{"event": "saved", "st'
exit 12"""
    heard = jvm.drive("never", script(body), *NOWHERE)
    assert heard.only("ended") == ("FAILED", "12", "10", "false")
    assert heard.only("saved") == ("4", "5")
    (message,) = heard.only("message")
    assert (len(message), message[-12:]) == (4095, "eeee the end")
    ended_clean(heard)


def test_a_listener_that_throws(jvm: Jvm, place: Place, tmp_path: Path) -> None:
    files = (place.artifacts.folder, place.user, tmp_path / "update", tmp_path / "state")
    heard = jvm.drive("throw", place.command, *files)
    assert heard.only("ended")[:2] == ("TRY_LATER", "137")
    assert "IllegalStateException: of the listener" in heard.err
    assert not heard.all("thread")


def test_no_binary(jvm: Jvm, tmp_path: Path) -> None:
    binary = tmp_path / "libphonograd_phone.so"
    for _ in range(2):  # missing, then not executable
        heard = jvm.drive("never", binary, *NOWHERE)
        assert f"FileNotFoundException: {binary}: missing or not executable; it ships as lib/arm64-v8a/" in heard.err
        binary.touch(0o644)


def test_a_binary_of_another_machine(jvm: Jvm, tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\x7fELF of nothing")
    binary.chmod(0o755)
    heard = jvm.drive("never", binary, *NOWHERE)
    assert heard.only("ended")[0] == "FAILED"
    assert heard.only("message")[0]


def ended_clean(heard: Heard) -> None:
    assert heard.err == ""
    assert heard.all("thread") == []
