"""adb's commands with a fake adb: its output, its failures, and that no process is left behind."""

import dataclasses
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from phonograd.android_harness.adb.client import Adb
from phonograd.android_harness.adb.marked_script import MarkedScript
from phonograd.android_harness.adb.states import AdbDevice, parse_devices
from phonograd.android_harness.adb.tool import AdbTool
from phonograd.android_harness.errors import (
    AdbError,
    PhoneLostError,
    PhoneRunError,
    PhoneStorageError,
    PhoneTimeoutError,
)
from phonograd.device_runtime.base.errors import StorageError
from tests.android_harness.conftest import PATIENT
from tests.android_harness.fake_adb import LISTED, SERIAL, FakeAdb
from tests.support.waiting import PATIENCE_SECONDS, until

WITHOUT_PAUSE = dataclasses.replace(PATIENT, server_pause=0)
STARTING = "* daemon not running; starting now at tcp:5037\n* daemon started successfully\n"
FOUGHT = "adb server version (40) doesn't match this client (41); killing...\n"
GONE = {"err": "adb: device 'FAKE01' not found\n", "code": 1}


@pytest.fixture
def adb(fake: FakeAdb) -> Adb:
    return Adb(fake.tool, WITHOUT_PAUSE)


def test_a_scripts_output_is_exact(adb: Adb, fake: FakeAdb) -> None:
    result = adb.shell(SERIAL, "printf 'a\\n\\nb'; echo oops >&2; exit 7")
    assert (result.status, result.out, result.err) == (7, "a\n\nb", "oops")
    assert adb.shell(SERIAL, "printf 'a\\n'").out == "a\n"
    assert adb.shell(SERIAL, "true").out == ""
    assert adb.shell(SERIAL, "printf '\\377\\000ok'").out == "�\0ok"
    assert adb.shell(SERIAL, "echo \"two  spaces\" 'and $quotes'; cat").out == "two  spaces and $quotes\n"
    call = fake.calls()[-1]  # one argument, no stdin, and a session of its own, which a terminal's signals do not reach
    assert isinstance(call["arguments"], list) and call["arguments"][:2] == ["shell", "-n"]
    assert len(call["arguments"]) == 3
    assert call["session"] == call["pid"] != os.getsid(0)


@pytest.mark.parametrize("place", ["noise", "noise_out"])
def test_adbs_notices_are_not_output(adb: Adb, fake: FakeAdb, place: str) -> None:
    fake.rule(**{place: STARTING + FOUGHT})
    assert adb.shell(SERIAL, "echo hello").out == "hello\n"
    assert adb.shell(SERIAL, "echo hello").err == ""
    assert [phone.serial for phone in adb.devices()] == [SERIAL]
    with adb.start(SERIAL, "echo hello") as process:
        assert [process.read_line(PATIENCE_SECONDS), process.read_line(PATIENCE_SECONDS)] == ["hello", None]


def test_a_failing_script_raises_with_check(adb: Adb) -> None:
    with pytest.raises(PhoneRunError, match="phone FAKE01: status 3 while looking: no such thing") as refusal:
        adb.shell(SERIAL, "echo first >&2; echo no such thing >&2; exit 3", check=True, doing="looking")
    assert refusal.value.exit_code == 23
    with pytest.raises(PhoneStorageError, match="storage error while looking: x: No space left on device; free space"):
        adb.shell(SERIAL, "echo 'x: No space left on device' >&2; exit 1", check=True, doing="looking")


def lines_of(adb: Adb) -> str:
    with adb.start(SERIAL, "echo one; echo two", doing="counting") as process:
        while process.read_line(PATIENCE_SECONDS) is not None:
            pass
        return str(process.wait(PATIENCE_SECONDS))


def shell(adb: Adb) -> str:
    return adb.shell(SERIAL, "echo one; echo two", doing="counting").out


CUT_OFF: list[tuple[dict[str, object], dict[str, str] | None, str]] = [
    (GONE, {}, "phone FAKE01: disconnected while counting (adb: device 'FAKE01' not found); plug it in again and"),
    ({"code": 0}, {}, "phone FAKE01: disconnected while counting; plug it in again and repeat the command"),
    ({"code": 0, "after": 40}, {}, "phone FAKE01: disconnected while counting; plug it in again"),
    # all of its output, and a status that may have had another digit
    ({"code": 0, "after": 33 + 8 + 33}, None, "phone FAKE01: the connection was lost while counting"),
    (
        {"code": 0, "after": 40},
        None,
        "phone FAKE01: the connection was lost while counting, and is back: the phone or",
    ),
    ({"err": "adb: error: closed\n", "code": 1}, None, "the connection was lost while counting (adb: closed)"),
    (
        {"err": "error: device offline\n", "code": 1},
        None,
        "lost while counting: adb sees it, but it does not answer",
    ),
    ({"code": 1}, {SERIAL: "offline"}, "lost while counting: adb sees it, but it does not answer; unplug it and"),
    (
        {"err": "error: device unauthorized.\nThis adb server's $ADB_VENDOR_KEYS is not set\n", "code": 1},
        None,
        "lost while counting: it has not authorised this computer for USB debugging; unlock it and tap Allow",
    ),
    (
        {"err": "error: insufficient permissions for device: user in plugdev group\n", "code": 1},
        None,
        "this user has no permission for its USB device; install the udev rules",
    ),
    ({"err": "adb: device still connecting\n", "code": 1}, None, "it is still connecting; wait some seconds"),
]


# Both ways read adb's exit by one rule: the second way with the first rows only.
@pytest.mark.parametrize(
    ("ask", "rule", "phones", "message"),
    [*((shell, *row) for row in CUT_OFF), *((lines_of, *row) for row in CUT_OFF[:4])],
)
def test_a_phone_that_disconnects(
    adb: Adb, fake: FakeAdb, ask: object, rule: dict[str, object], phones: dict[str, str] | None, message: str
) -> None:
    fake.phones = {SERIAL: LISTED} if phones is None else phones
    fake.rule(shell=rule)
    assert callable(ask)
    with pytest.raises(PhoneLostError) as error:
        ask(adb)
    assert error.value.exit_code == 21
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert fake.still_running() == []


def test_a_scripts_output_is_not_mistaken_for_adbs_messages(adb: Adb, fake: FakeAdb) -> None:
    fake.rule(shell={"err": "sh: device unauthorized, device 'x' not found\n", "code": 1})
    with pytest.raises(PhoneLostError, match="the connection was lost"):
        shell(adb)


def test_a_silent_phone(adb: Adb, fake: FakeAdb) -> None:
    fake.rule(shell={"hang": 3600})
    with pytest.raises(
        PhoneTimeoutError, match=r"phone FAKE01: did not answer within 1 s while counting; adb's state: device"
    ):
        adb.shell(SERIAL, "true", timeout=1, doing="counting")
    with adb.start(SERIAL, "true", doing="counting") as process:
        with pytest.raises(PhoneTimeoutError, match="phone FAKE01: printed nothing for 0 s while counting"):
            process.read_line(0.2)
        with pytest.raises(PhoneTimeoutError, match="printed nothing for 0 s while counting"):
            process.wait(0.2)
    assert fake.still_running() == []


def test_a_finished_script_does_not_wait_for_its_client(adb: Adb, fake: FakeAdb) -> None:
    """Something that the script left in the background keeps its pipes open."""
    leaving = "sleep 700 & echo done; exit 4"
    with ThreadPoolExecutor() as pool:
        result = pool.submit(adb.shell, SERIAL, leaving, timeout=2 * PATIENCE_SECONDS)
        until(result.done, "the script's status")
    assert (result.result().status, result.result().out) == (4, "done\n")
    with adb.start(SERIAL, leaving) as process:
        assert process.wait(PATIENCE_SECONDS) == 4
    assert fake.still_running() == []


def test_an_interrupt_ends_the_client(adb: Adb, fake: FakeAdb, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.rule(shell={"hang": 60})

    def interrupt(*_: object, **__: object) -> None:
        monkeypatch.undo()
        until(fake.calls, "the call")
        raise KeyboardInterrupt

    monkeypatch.setattr("subprocess.Popen.communicate", interrupt)
    with pytest.raises(KeyboardInterrupt):
        shell(adb)
    assert len(fake.calls()) == 1
    assert fake.still_running() == []


def test_lines_and_answers(adb: Adb, fake: FakeAdb) -> None:
    script = "while read word; do echo got $word; echo; done; printf 'no line break'; echo bad >&2; exit 5"
    with adb.start(SERIAL, script) as process:
        process.write_line("one")
        assert process.read_line(PATIENCE_SECONDS) == "got one"
        process.write_line("two words")
        assert [process.read_line(PATIENCE_SECONDS), process.read_line(PATIENCE_SECONDS)] == ["", "got two words"]
        process.close()
        process.close()
        process.write_line("into a closed pipe")
        assert [process.read_line(PATIENCE_SECONDS) for _ in range(4)] == ["", "no line break", None, None]
        assert process.wait(PATIENCE_SECONDS) == 5
        assert process.err == "bad\n"
    process.kill()
    process.kill()
    assert fake.still_running() == []


def test_writing_to_a_script_that_reads_nothing_does_not_block(adb: Adb) -> None:
    with adb.start(SERIAL, "sleep 8") as process:
        for _ in range(200):
            process.write_line("x" * 1000)


def test_stderr_is_bounded(adb: Adb) -> None:
    with adb.start(SERIAL, "head -c 300000 /dev/zero | tr '\\0' x >&2; echo end >&2") as process:
        assert process.wait(PATIENCE_SECONDS) == 0
        assert len(process.err) <= 1 << 16
        assert process.err.endswith("xend\n")


def test_a_file_that_is_not_here_is_not_pushed(adb: Adb, fake: FakeAdb, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot read: No such file or directory"):
        adb.push(SERIAL, tmp_path / "none", "/data/w")
    assert fake.calls() == []


@pytest.mark.parametrize(
    ("rule", "error", "message"),
    [
        ({"code": 0, "after": 3}, PhoneLostError, "the connection was lost while pulling /data/u"),
        ({"code": 1, "after": 3, "err": "adb: error: failed to copy\n"}, PhoneLostError, "(adb: failed to copy)"),
        ({"after": 3, "hang": 60}, PhoneTimeoutError, "did not answer within 1 s while pulling /data/u"),
        (
            {"code": 1, "err": "adb: error: failed to stat remote object '/data/u': No such file or directory\n"},
            PhoneStorageError,
            "phone FAKE01: storage error while pulling /data/u: adb: failed to stat remote object",
        ),
    ],
)
def test_a_pull_that_fails_leaves_nothing(
    adb: Adb, fake: FakeAdb, tmp_path: Path, rule: dict[str, object], error: type[Exception], message: str
) -> None:
    (fake.folder / "phone" / "_data_u").write_bytes(b"an update")
    (tmp_path / "update").write_bytes(b"the one before")
    fake.rule(pull=rule)
    with pytest.raises(error) as failure:
        adb.pull(SERIAL, "/data/u", tmp_path / "update", timeout=1 if "hang" in rule else None)
    assert message in str(failure.value)
    assert (tmp_path / "update").read_bytes() == b"the one before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tools", "update"]
    assert fake.still_running() == []


NO_SERVER = (
    "* daemon not running; starting now at tcp:5037\nADB server didn't ACK\n"
    "Full server startup log: /tmp/adb.0.log\nadb: failed to start daemon: Address already in use\n"
    "error: cannot connect to daemon\n"
)


def test_a_server_that_does_not_start_is_tried_twice(adb: Adb, fake: FakeAdb) -> None:
    fake.rule(shell={"err": NO_SERVER, "code": 1})
    with pytest.raises(AdbError, match=r"adb: its server does not start \(cannot connect to daemon\); another program"):
        shell(adb)
    assert len(fake.calls()) == 2
    fake.rule(shell={"err": NO_SERVER, "code": 1, "times": 1})
    assert shell(adb) == "one\ntwo\n"


def test_an_adb_that_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(AdbError, match="gone: does not start: No such file or directory"):
        Adb(AdbTool(tmp_path / "gone", "1", "PATH")).devices()


def test_the_list_of_phones() -> None:
    text = (
        f"{STARTING}List of devices attached\n"
        "0123456789ABCDEF       device usb:1-4 product:bluejay model:Pixel_6a device:bluejay transport_id:4\n"
        "127.0.0.1:5555         offline transport_id:1\n"
        "emulator-5554          unauthorized transport_id:2\n"
        "????????????           no permissions (user in plugdev group; are your udev rules wrong?); "
        "see [http://developer.android.com/tools/device.html] usb:1-3 transport_id:7\n"
        "adb-1A-x (2)._adb-tls-connect._tcp connecting transport_id:8\n"
        "sn                     some-new-state transport_id:9\n"
        "adb: something else\n"
        "\n"
    )
    assert [(phone.serial, phone.state) for phone in parse_devices(text)] == [
        ("0123456789ABCDEF", "device"),
        ("127.0.0.1:5555", "offline"),
        ("emulator-5554", "unauthorized"),
        ("????????????", "no permissions"),
        ("adb-1A-x (2)._adb-tls-connect._tcp", "connecting"),
        ("sn", "some-new-state"),
    ]
    assert parse_devices(text)[0] == AdbDevice(
        "0123456789ABCDEF",
        "device",
        {"usb": "1-4", "product": "bluejay", "model": "Pixel_6a", "device": "bluejay", "transport_id": "4"},
    )
    assert parse_devices(text)[3].properties == {"usb": "1-3", "transport_id": "7"}


@pytest.mark.parametrize("serial", ["  my device 1 ", "a serial device of 25 ", "0" * 22 + "  "])
def test_a_serial_with_spaces_or_states(adb: Adb, fake: FakeAdb, serial: str) -> None:
    fake.phones = {serial: LISTED, "next": "offline"}
    fake.write()
    [phone, other] = adb.devices()
    assert (phone.serial, phone.state, phone.properties["transport_id"]) == (serial, "device", "3")
    assert (other.serial, other.state) == ("next", "offline")
    assert adb.shell(serial, "echo hello").out == "hello\n"
    assert fake.calls()[-1]["serial"] == serial


@pytest.mark.parametrize(
    ("noise", "output", "status"),
    [("", "", 0), (STARTING, "one\n\ntwo 3", 7), ("\0é", "phonograd-end-0 0\n\r\x1c", 255)],
)
def test_marks_give_back_any_output(noise: str, output: str, status: int) -> None:
    marked_script = MarkedScript("script")
    printed = f"{noise}\n{marked_script.begin}\n{output}\nphonograd-end-{marked_script.nonce} {status}\n"
    assert marked_script.split(printed) == (output, status)
    for end in range(1, 20):
        assert marked_script.split(printed[:-end])[1] is None
