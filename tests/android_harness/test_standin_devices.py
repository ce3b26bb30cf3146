"""adb's calls and `phonograd devices` with real adb clients on stand-in phones."""

import contextlib
import dataclasses
import os
import socket
import threading
from pathlib import Path

import pytest

from phonograd.android_harness.adb.client import Adb
from phonograd.android_harness.errors import AdbError, PhoneLostError, PhoneStorageError, PhoneTimeoutError
from phonograd.android_harness.phones.discovery import discover
from phonograd.device_runtime.base.errors import StorageError
from tests.android_harness.conftest import PATIENT
from tests.phone.stand_in import A76, AdbServer, StandInPhone
from tests.support.command_line import Run
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.standin


@pytest.mark.both_adbs
def test_scripts(adb: Adb, phone: StandInPhone) -> None:
    serial = phone.serial
    assert adb.state(serial) == "device"
    result = adb.shell(serial, "printf 'a  b\\n\\n\"$HOME'; echo oops >&2; exit 7")
    assert (result.status, result.err) == (7, "oops")
    assert result.out.startswith('a  b\n\n"')
    assert adb.shell(serial, "printf '\\377\\000 ok'; cat").out == "�\0 ok"
    assert adb.shell(serial, "\n".join(["# a comment"] * 2000) + "\necho $((6 * 7))").out == "42\n"
    assert adb.shell(serial, "seq 100000").out.count("\n") == 100000


@pytest.mark.both_adbs
def test_a_phone_by_its_full_name(adb: Adb, phone: StandInPhone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANDROID_SERIAL", "another")
    [listed] = adb.devices()
    assert listed.serial == phone.serial
    assert adb.shell(listed.full_name, "echo hello").out == "hello\n"
    with adb.start(listed.full_name, "echo hello") as process:
        assert process.read_line(PATIENCE_SECONDS) == "hello"


@pytest.mark.both_adbs
def test_files_that_a_phone_refuses(adb: Adb, phone: StandInPhone, tmp_path: Path) -> None:
    local = tmp_path / "weights.bin"
    local.write_bytes(bytes(1_000_000))
    for refused in ("/proc/none/weights.bin", "/data/local/tmp/weights.bin/below"):
        if refused.startswith("/data"):
            adb.push(phone.serial, local, "/data/local/tmp/weights.bin")
        with pytest.raises(PhoneStorageError, match=f"storage error while pushing weights.bin to {refused}"):
            adb.push(phone.serial, local, refused)
    with pytest.raises(PhoneStorageError, match="storage error while pulling /data/none"):
        adb.pull(phone.serial, "/data/none", tmp_path / "back")
    adb.shell(phone.serial, "mkdir -p /data/local/tmp/folder && echo x >/data/local/tmp/folder/file", check=True)
    with pytest.raises(PhoneStorageError, match="while pulling /data/local/tmp/folder: .*Is a directory"):
        adb.pull(phone.serial, "/data/local/tmp/folder", tmp_path / "back")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["weights.bin"]


@pytest.mark.both_adbs
def test_a_phone_that_is_full(adb: Adb, phone: StandInPhone, tmp_path: Path) -> None:
    local = tmp_path / "weights.bin"
    local.write_bytes(bytes(8_000_000))
    phone.fill_storage(leave_bytes=1_000_000)
    with pytest.raises(PhoneStorageError, match=r"No space left on device; free space on it \(Settings, Storage\)"):
        adb.push(phone.serial, local, "/data/local/tmp/weights.bin")
    with pytest.raises(PhoneStorageError, match="while filling it: .*No space left on device; free space"):
        script = "dd if=/dev/zero of=/data/local/tmp/zeros bs=1M count=8"
        adb.shell(phone.serial, script, check=True, doing="filling it")


@pytest.mark.both_adbs
def test_this_machines_disk_is_full(adb: Adb, phone: StandInPhone) -> None:
    adb.shell(phone.serial, "echo an update >/data/local/tmp/update", check=True)
    with pytest.raises(StorageError, match="cannot write") as error:
        adb.pull(phone.serial, "/data/local/tmp/update", Path("/proc/update"))
    assert not isinstance(error.value, PhoneStorageError)


@pytest.mark.both_adbs
def test_a_cable_pulled_in_mid_push(adb: Adb, adb_server: AdbServer, phone: StandInPhone, tmp_path: Path) -> None:
    local = tmp_path / "weights.bin"
    local.write_bytes(os.urandom(20_000_000))
    phone.drop_in_push(after_bytes=4_000_000)
    with pytest.raises(
        PhoneLostError, match=rf"phone {phone.serial}: .* while pushing weights.bin.*repeat the command"
    ):
        adb.push(phone.serial, local, "/data/local/tmp/weights.bin")


@pytest.mark.both_adbs
def test_a_cable_pulled_while_lines_are_read(adb: Adb, phone: StandInPhone) -> None:
    with adb.start(phone.serial, "echo begun; sleep 60", doing="sleeping") as process:
        assert process.read_line(PATIENCE_SECONDS) == "begun"
        phone.unplug()
        assert process.read_line(PATIENCE_SECONDS) is None
        with pytest.raises(PhoneLostError, match="while sleeping.*repeat the command"):
            process.wait(PATIENCE_SECONDS)


@pytest.mark.both_adbs
def test_a_silent_phone(adb: Adb, adb_server: AdbServer, phone: StandInPhone, tmp_path: Path) -> None:
    phone.go_silent()
    with pytest.raises(
        PhoneTimeoutError, match=f"phone {phone.serial}: did not answer within 1 s while running a script"
    ):
        adb.shell(phone.serial, "true", timeout=1)
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(PhoneTimeoutError, match="did not answer within 1 s while pushing file"):
        adb.push(phone.serial, tmp_path / "file", "/data/local/tmp/file", timeout=1)
    [found] = discover(Adb(adb.tool, dataclasses.replace(PATIENT, shell=1)))
    assert found.reason == "did not answer within 1 s while reading its properties"
    assert adb_server.is_running


@pytest.mark.both_adbs
def test_a_server_ended_between_calls(adb: Adb, adb_server: AdbServer, phone: StandInPhone) -> None:
    adb_server.kill()
    with pytest.raises(PhoneLostError, match=f"phone {phone.serial}: disconnected while running a script"):
        adb.shell(phone.serial, "true")  # a new server does not know of a phone over the network
    adb_server.run("connect", phone.serial)
    adb_server.wait_for(phone, "device")
    assert adb.shell(phone.serial, "echo back").out == "back\n"


@pytest.mark.both_adbs
def test_a_server_ended_in_a_call(adb: Adb, adb_server: AdbServer, phone: StandInPhone) -> None:
    with adb.start(phone.serial, "echo begun; sleep 60", doing="sleeping") as process:
        assert process.read_line(PATIENCE_SECONDS) == "begun"
        adb_server.kill()
        assert process.read_line(PATIENCE_SECONDS) is None
        with pytest.raises(PhoneLostError, match="while sleeping"):
            process.wait(PATIENCE_SECONDS)


@pytest.mark.both_adbs
def test_threads_that_start_the_server_together(adb: Adb, adb_server: AdbServer) -> None:
    adb_server.kill()
    failures: list[Exception] = []

    def ask() -> None:
        try:
            assert adb.devices() == []
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.both_adbs
def test_a_port_that_another_program_holds(adb: Adb, adb_server: AdbServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(other.getsockname()[1]))
        silent = Adb(adb.tool, dataclasses.replace(PATIENT, listing=2))
        with pytest.raises(AdbError, match="adb: did not answer within 2 s; its server hangs, or another program uses"):
            silent.devices()


def answering(answer: bytes, other: socket.socket) -> None:
    """The answer to every connection to a port."""
    while True:
        try:
            connection, _ = other.accept()
        except OSError:
            return
        with connection, contextlib.suppress(OSError):
            connection.recv(100)
            connection.sendall(answer)


@pytest.mark.both_adbs
@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"HTTP/1.0 400 Bad Request\r\n\r\n", r"adb: its server does not start \(failed to check server version"),
        (
            b"OKAY00040028",
            r"adb server version \(40\) doesn't match this client \(41\): two versions of adb are in use",
        ),
    ],
)
def test_a_port_with_another_server(adb: Adb, monkeypatch: pytest.MonkeyPatch, answer: bytes, message: str) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        thread = threading.Thread(target=answering, args=(answer, other))
        thread.start()
        with monkeypatch.context() as elsewhere:
            elsewhere.setenv("ANDROID_ADB_SERVER_PORT", str(other.getsockname()[1]))
            for ask in (adb.devices, lambda: adb.shell("x", "true")):
                with pytest.raises(AdbError, match=message):
                    ask()
        other.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_devices(phono: Run, two_phones: list[StandInPhone]) -> None:
    outcome = phono("devices")
    assert outcome.code == 0, outcome.err
    assert max(map(len, outcome.out.splitlines())) <= 120, outcome.out
    document = phono("devices", "--json").document
    found = {phone["serial"]: phone for phone in document["phones"]}
    assert set(found) == {phone.serial for phone in two_phones}
    for phone in two_phones:
        spec, facts = phone.spec, found[phone.serial]["facts"]
        assert found[phone.serial]["ready"], found[phone.serial]["reason"]
        assert (facts["manufacturer"], facts["model"], facts["sdk"], facts["abi"]) == (
            spec.manufacturer,
            spec.model,
            spec.sdk,
            "arm64-v8a",
        )
        assert spec.soc.lower() in facts["soc"].lower()
        assert [cluster["max_khz"] for cluster in facts["clusters"]] == [spec.little_khz, spec.big_khz]
        assert facts["battery"]["percent"] == spec.battery_percent
        assert 0 < facts["free_bytes"] <= spec.storage_bytes
        assert 0 < facts["memory_available_bytes"] <= facts["memory_bytes"] <= spec.memory_bytes
        assert (facts["thermal_status"] is None) == (spec.sdk < 29)
        assert facts["temperature_c"] is not None


def test_devices_that_are_not_ready(phono: Run, adb_server: AdbServer) -> None:
    with StandInPhone(dataclasses.replace(A76, trusts_hosts=False)) as phone:
        adb_server.connect(phone, expected="unauthorized")
        outcome = phono("devices")
        assert outcome.code == 20
        assert (
            f"phone {phone.serial}: it has not authorised this computer for USB debugging; unlock it and tap"
            in outcome.err
        )
        phone.authorise()
        adb_server.connect(phone)
        assert phono("devices").code == 0
        phone.battery(7, charging=True)
        assert "its battery is at 7 %; 20 % is needed, even on a charger" in phono("devices").err
