"""A session on a phone: the lock, files by hash, programs, and that nothing is left behind however it ends."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from phonograd.android_harness.adb.client import Adb
from phonograd.android_harness.errors import (
    PhoneBusyError,
    PhoneLostError,
    PhoneRunError,
    PhoneStorageError,
    WatchdogEndedError,
)
from phonograd.android_harness.phones.facts import Power
from phonograd.android_harness.result import KeptAwake, PowerState
from phonograd.android_harness.session import PROGRAM, PhoneSession, SessionSettings
from phonograd.android_harness.session.watchdog import Watchdog
from phonograd.device_runtime.base.errors import StoppedError
from phonograd.device_runtime.base.files import sha256_of_file
from tests.android_harness.conftest import nothing_is_left, work_of
from tests.phone.stand_in import A53, A76, AdbServer, StandInPhone
from tests.support.command_line import Run
from tests.support.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.standin

SILENT = SessionSettings(timeout_seconds=4.0, reconnect_seconds=2.0, exit_seconds=PATIENCE_SECONDS)
FAST = replace(SILENT, heartbeat_seconds=0.5, timeout_seconds=PATIENCE_SECONDS)
KEPT = replace(FAST, keep_files=True)
# For a phone that comes back: as soon as it is there, nobody waits any longer.
BACK = replace(FAST, reconnect_seconds=PATIENCE_SECONDS)
# A program that reports a step five times a second, and would end by itself at last.
SLOW = """echo '{"event":"start"}'
for step in $(seq 200); do sleep 0.2; echo '{"event":"step"}'; done"""
SHORT = SLOW.replace("200", "20")
# One that says nothing. What it starts is gone soon: a session ends programs, not what they leave behind.
MUTE = "for step in $(seq 200); do sleep 0.2; done"


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], dict[str, Path]]:
    """A script as phonograd-phone, to be synced."""

    def write(text: str) -> dict[str, Path]:
        path = tmp_path / "program"
        path.write_text(f"#!/system/bin/sh\n{text}\n", "utf-8")
        path.chmod(0o755)
        return {PROGRAM: path}

    return write


def reconnect_to(phone: StandInPhone, adb_server: AdbServer) -> None:
    """Connect again, as a USB phone does by itself; one over the network does not always."""
    adb_server.disconnect(phone)
    adb_server.connect(phone)


def sampling_on(phone: StandInPhone) -> bool:
    """Whether on_phone/sampler.sh runs; its text is its shell's command line."""
    return any("class/thermal/thermal_zone" in line for line in phone.processes())


def test_only_missing_files_are_pushed(adb: Adb, watched: StandInPhone, tmp_path: Path) -> None:
    files = {"artifacts/a": tmp_path / "a", "artifacts/deep/b c": tmp_path / "b", "c": tmp_path / "c"}
    for number, path in enumerate(files.values()):
        path.write_bytes(bytes([number]) * 70_000 * number)
    with PhoneSession(adb, watched.serial, KEPT) as session:
        first = session.sync(files)
    assert [file.pushed for file in first.files] == [True, True, True]
    assert first.nbytes == 210_000 == watched.counters.pushed
    (tmp_path / "a").write_bytes(b"changed")
    with PhoneSession(adb, watched.serial, KEPT) as session:
        second = session.sync(files)
    assert [file.pushed for file in second.files] == [True, False, False]
    assert second.nbytes == 7 == watched.counters.pushed - 210_000
    with PhoneSession(adb, watched.serial, FAST) as session:
        assert session.sync(files).nbytes == 0
        session.pull("artifacts/a", tmp_path / "back", sha256_of_file(tmp_path / "a"))
        assert (tmp_path / "back").read_bytes() == b"changed"
        with pytest.raises(PhoneRunError, match=r"SHA-256 is 000000000000… on the phone and .* here"):
            session.pull("artifacts/a", tmp_path / "back", "0" * 64)
        assert not (tmp_path / "back").exists()
    assert not work_of(watched).exists()  # without keep the phone is as it was


def test_only_the_shell_user_can_read_pushed_files(adb: Adb, watched: StandInPhone, tmp_path: Path) -> None:
    work = work_of(watched)
    work.mkdir(0o755)  # as an earlier version made it
    files = {PROGRAM: tmp_path / "program", "artifacts/deep/a": tmp_path / "a", "run/text": tmp_path / "a"}
    for path, mode in ((tmp_path / "program", 0o755), (tmp_path / "a", 0o644)):
        path.write_text("x")
        path.chmod(mode)
    with PhoneSession(adb, watched.serial, FAST) as session:
        session.sync(files)
        session.fixed_performance()
        modes = {str(path.relative_to(work)): path.stat().st_mode & 0o777 for path in work.rglob("*")}
        modes["."] = work.stat().st_mode & 0o777
    assert modes == {
        **dict.fromkeys([".", "run", "artifacts", "artifacts/deep", PROGRAM], 0o700),
        **dict.fromkeys(["lock", "undo", "pushed", "run/text", "artifacts/deep/a"], 0o600),
    }


def test_a_file_that_arrives_damaged_is_not_renamed_into_place(adb: Adb, watched: StandInPhone, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"hashed")

    def change(done: int, total: int, name: str) -> None:
        (tmp_path / "a").write_bytes(b"pushed")

    with (
        pytest.raises(PhoneRunError, match=r"a: SHA-256 .*… pushed, .*… arrived"),
        PhoneSession(adb, watched.serial, KEPT) as session,
    ):
        session.sync({"a": tmp_path / "a"}, change)
    assert not (work_of(watched) / "a").exists()


def test_two_harnesses(adb: Adb, watched: StandInPhone) -> None:
    second = PhoneSession(adb, watched.serial, FAST)
    busy = pytest.raises(PhoneBusyError, match=r"another phonograd \(.*@.* process \d+\) is using it; wait")
    with PhoneSession(adb, watched.serial, FAST), busy, second:
        pass
    with PhoneSession(adb, watched.serial, FAST) as session:
        assert not session.found_leftovers


def test_a_stale_lock_is_taken_over(adb: Adb, watched: StandInPhone) -> None:
    work = work_of(watched)
    # A living process with the lock's nonce in its command line: only the boot tells that it is another's.
    living = adb.shell(watched.serial, "sleep 1000 0123 </dev/null >/dev/null 2>&1 & echo $!", check=True).out.strip()
    for stale in (
        f"{living} of-another-boot 0123 me@desk process 7\n",
        f"99999 {watched.boot_id} 0123 me@desk process 7\n",
        "",
    ):
        work.mkdir(parents=True, exist_ok=True)
        (work / "lock").write_text(stale)
        (work / "run").mkdir()
        (work / "run" / "text").write_text("secret")
        with PhoneSession(adb, watched.serial, FAST) as session:
            assert session.found_leftovers
            assert not (work / "run" / "text").exists()
    adb.shell(watched.serial, f"kill {living}", check=True)


def test_a_program_and_its_exit_codes(
    adb: Adb, watched: StandInPhone, program: Callable[[str], dict[str, Path]]
) -> None:
    events: list[str] = []
    stop = threading.Event()

    def run(session: PhoneSession, text: str) -> float:
        session.sync(program(text))
        return session.run(["train", "it's", "a b"], lambda at, event: events.append(event["event"]), stop)

    with PhoneSession(adb, watched.serial, FAST) as session:
        seconds = run(session, 'echo noise; echo "{\\"event\\":\\"$1 $2 $3\\"}"')
        assert (events, 0 < seconds < 60) == (["train it's a b"], True)
        for code in (3, 29):
            with pytest.raises(PhoneRunError, match="phonograd-phone train: no such text") as refused:
                run(session, f"echo phonograd-phone: no such text >&2; exit {code}")
            assert refused.value.exit_code == code
        for text, message in (
            ("kill -9 $$", "killed by Android .signal 9., most likely for lack of memory"),
            ("kill -11 $$", "ended by signal 11: a bug of phonograd"),
            ("echo odd >&2; exit 99", "exit code 99: odd"),
        ):
            with pytest.raises(PhoneRunError, match=message) as failed:
                run(session, text)
            assert failed.value.exit_code == 23
        with pytest.raises(PhoneRunError, match="received SIGTERM on the phone") as ended:
            run(session, "kill -15 $$")
        assert ended.value.exit_code == 21
        threading.Timer(1, stop.set).start()
        with pytest.raises(StoppedError, match="stopped"):
            run(session, SLOW)


def test_a_program_that_prints_nothing(
    adb: Adb, watched: StandInPhone, program: Callable[[str], dict[str, Path]]
) -> None:
    with (
        pytest.raises(PhoneLostError, match="printed nothing for 4 s while phonograd-phone train ran"),
        PhoneSession(adb, watched.serial, SILENT) as session,
    ):
        session.sync(program(MUTE))
        session.run(["train"], lambda at, event: None, threading.Event())


@pytest.mark.both_adbs
@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("unplugged", r"disconnected while phonograd-phone train ran \(cable pulled,"),
        ("reconnected", "the connection was lost while phonograd-phone train ran, and is back"),
        ("rebooted", "rebooted while phonograd-phone train ran; its work is lost"),
    ],
)
def test_a_broken_connection(
    adb: Adb,
    adb_server: AdbServer,
    phone: StandInPhone,
    program: Callable[[str], dict[str, Path]],
    broken: str,
    message: str,
) -> None:
    def hear(at: float, event: object) -> None:
        if broken == "unplugged":
            phone.unplug()
            return
        if broken == "rebooted":
            phone.reboot(0.5)
        reconnect_to(phone, adb_server)

    settings = FAST if broken == "unplugged" else BACK
    with pytest.raises(PhoneLostError, match=message), PhoneSession(adb, phone.serial, settings) as session:
        session.sync(program(SLOW))
        session.run(["train"], hear, threading.Event())
    if broken == "rebooted":
        assert (work_of(phone) / "lock").exists()  # nobody was left to remove it
        with PhoneSession(adb, phone.serial, FAST) as session:
            assert session.found_leftovers
    until(lambda: nothing_is_left(phone))


@pytest.fixture(params=[A53, A76], ids=["android 9", "android 13"])
def old_or_new(request: pytest.FixtureRequest, adb_server: AdbServer) -> Iterator[StandInPhone]:
    """A phone with BSD's grep, then one with toybox's."""
    with StandInPhone(request.param) as phone:
        adb_server.connect(phone)
        yield phone


def test_a_host_that_stops_sending_heartbeats(
    adb: Adb,
    old_or_new: StandInPhone,
    program: Callable[[str], dict[str, Path]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mute = threading.Event()

    def beat(watchdog: Watchdog) -> None:
        while not mute.wait(0.2):
            watchdog._process.write_line("beat")

    def hear(at: float, event: object) -> None:
        events.append(event)
        mute.set()

    monkeypatch.setattr(Watchdog, "_send_heartbeats", beat)
    phone, events = old_or_new, list[object]()
    why = "the watchdog .* ended while phonograd-phone train ran: it received nothing from this machine for 4 s"
    with pytest.raises(WatchdogEndedError, match=why), PhoneSession(adb, phone.serial, SILENT) as session:
        session.sync(program(SLOW))
        with pytest.raises(WatchdogEndedError, match=why) as ended:
            session.run(["train"], hear, threading.Event())
        assert ended.value.exit_code == 21
        until(lambda: nothing_is_left(phone))
        assert events
        events.clear()
        session.run(["train"], hear, threading.Event())  # not begun: nobody would end it
    assert events == []
    until(lambda: nothing_is_left(phone))


def test_a_stall_shorter_than_the_timeout_costs_nothing(
    adb: Adb, watched: StandInPhone, program: Callable[[str], dict[str, Path]]
) -> None:
    events: list[object] = []
    speaking = threading.Timer(2.0, watched.speak)

    def stall(at: float, event: object) -> None:
        events.append(event)
        if len(events) == 2:
            watched.go_silent()
            speaking.start()

    with PhoneSession(adb, watched.serial, FAST) as session:
        session.sync(program(SHORT))
        session.run(["train"], stall, threading.Event())
    speaking.join()
    assert len(events) == 21


def test_a_watchdog_that_is_killed_is_named_and_cleaned_up_after(
    adb: Adb, watched: StandInPhone, program: Callable[[str], dict[str, Path]]
) -> None:
    def kill_watchdog(at: float, event: object) -> None:
        watched.kill("watchdog_main")

    with (
        pytest.raises(
            WatchdogEndedError, match=r"ended while phonograd-phone train ran: it was killed on the phone .status 137."
        ),
        PhoneSession(adb, watched.serial, FAST) as session,
    ):
        session.sync(program(SLOW))
        assert session.fixed_performance()
        session.run(["train"], kill_watchdog, threading.Event())
    assert nothing_is_left(watched)  # at once: the program was ended, the lock taken over, the settings undone
    assert not watched.fixed_performance
    assert not work_of(watched).exists()


def test_storage_that_is_full(adb: Adb, watched: StandInPhone, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * 3_000_000)
    watched.fill_storage(leave_bytes=2_000_000)
    with (
        pytest.raises(PhoneStorageError, match=r"11 MB of free space needed in /data/local/tmp/phonograd, found \d MB"),
        PhoneSession(adb, watched.serial, FAST) as session,
    ):
        session.sync({"large": tmp_path / "large"})
    watched.fill_storage(leave_bytes=0)
    with (
        pytest.raises(PhoneStorageError, match="cannot write there: storage full or read-only"),
        PhoneSession(adb, watched.serial, FAST),
    ):
        pass
    watched.empty_storage()
    with PhoneSession(adb, watched.serial, FAST) as session:
        assert session.sync({"large": tmp_path / "large"}).nbytes == 3_000_000


def test_a_phone_is_kept_awake_and_sleeps_again_afterwards(adb: Adb, watched: StandInPhone) -> None:
    watched.fall_asleep()
    asleep = watched.rest
    with PhoneSession(adb, watched.serial, FAST) as session:
        *left_alone, nothing = session.power_states(keep_awake=False)
        assert watched.rest == asleep
        before, now, kept = session.power_states(keep_awake=True)
        assert session.fixed_performance()
        assert watched.rest == {
            "wakefulness": "Awake",
            "doze": "0",
            "low_power": "0",
            "stay_on_while_plugged_in": "7",
            "screen_off_timeout": "2147483647",
        }
    assert left_alone == [PowerState(False, True, True)] * 2
    assert nothing == KeptAwake((), ())
    assert kept.changed == ("stay_on_while_plugged_in", "screen_off_timeout", "screen", "doze", "low_power")
    assert kept.refused == ()
    assert (before, now) == (PowerState(False, True, True), PowerState(True, False, False))
    assert watched.rest == asleep == {"wakefulness": "Asleep", "doze": "1", "low_power": "1"}
    assert not watched.fixed_performance


def test_samples_have_the_batterys_power(adb: Adb, watched: StandInPhone) -> None:
    battery = watched.root / "sys/class/power_supply/battery"
    with PhoneSession(adb, watched.serial, FAST) as session:
        watched.battery(80, charging=False)
        # The stand-in's dumpsys says 4100 mV and 2000000 µAh, and its /sys has neither.
        assert session.sample().power == Power(None, 4_100_000, 2_000_000, False)
        for name, value in (("current_now", -512_345), ("voltage_now", 4_050_000), ("charge_counter", 3_000_000)):
            (battery / name).write_text(f"{value}\n")
        assert session.sample().power == Power(-512_345, 4_050_000, 3_000_000, False)
        watched.battery(80, charging=True)
        assert session.sample().power.plugged_in is True


def test_samples_and_the_performance_mode(adb: Adb, watched: StandInPhone) -> None:
    with PhoneSession(adb, watched.serial, FAST) as session:
        core = watched.cores()[-1]
        watched.set_frequency(core, 1_234_000)
        watched.heat(47.5, status=2)
        sample = session.sample()
        assert (sample.frequencies_khz[core], sample.caps_khz[core], sample.thermal_status) == (1_234_000, 1_234_000, 2)
        assert max(sample.temperatures_c.values()) == pytest.approx(47.5)
        assert (sample.battery_percent, sample.battery_temperature_c) == (80, pytest.approx(47.5))
        assert session.fixed_performance()
        assert watched.fixed_performance
        seen: list[float] = []
        with session.sample_periodically(lambda sample: seen.append(sample.at_s), 0.2):
            until(lambda: len(seen) >= 3)
            assert sampling_on(watched)
        assert seen == sorted(seen)
        until(lambda: not sampling_on(watched), "the end of sampling")
    assert not watched.fixed_performance


def test_settings_that_android_refuses_to_change(adb: Adb, watched: StandInPhone) -> None:
    watched.fall_asleep()
    watched.refuse_settings()
    asleep = watched.rest
    with PhoneSession(adb, watched.serial, FAST) as session:
        _, now, kept = session.power_states(keep_awake=True)
    assert now == PowerState(True, False, True)
    assert kept == KeptAwake(("screen", "doze"), ("stay_on_while_plugged_in", "screen_off_timeout", "low_power"))
    assert watched.rest == asleep


@pytest.mark.parametrize("moment", ["locked", "input", "training", "restoring"])
def test_a_reboot_at_any_moment_leaves_nothing_that_devices_does_not_restore(
    adb: Adb,
    adb_server: AdbServer,
    phone: StandInPhone,
    program: Callable[[str], dict[str, Path]],
    phono: Run,
    tmp_path: Path,
    moment: str,
) -> None:
    """Moments: what was done last, or the command of Android's that runs."""
    phone.fall_asleep()
    before, work = settings_of(phone), work_of(phone)
    here, rebooted = threading.Event(), threading.Event()
    (tmp_path / "text").write_text("secret")
    files = {**program(SLOW if moment == "training" else "true"), "run/text": tmp_path / "text"}

    def at(reached: str) -> None:
        if reached == moment:
            here.set()
            assert rebooted.wait(PATIENCE_SECONDS)

    def hang_at(command: str) -> None:
        phone.hang_at(command)
        threading.Thread(target=until, args=(lambda: runs(command) and (here.set() or True),)).start()

    def runs(command: str) -> bool:
        return any(f"bin/{command} " in line for line in phone.processes())

    def use_phone() -> None:
        with contextlib.suppress(PhoneLostError), PhoneSession(adb, phone.serial, BACK) as session:
            at("locked")
            session.sync(files)
            if moment == "input":
                hang_at("input")
            session.power_states(keep_awake=True)
            assert session.fixed_performance()
            session.run(["train"], lambda *_: at("training"), threading.Event())
            hang_at("settings")  # restoring

    user = threading.Thread(target=use_phone)
    user.start()
    assert here.wait(PATIENCE_SECONDS)
    phone.reboot(0)
    rebooted.set()
    reconnect_to(phone, adb_server)
    user.join()
    assert (work / "lock").exists()
    said = phono("devices")
    assert f"phone {phone.serial}: an earlier run was cut off, perhaps by a reboot, and left" in said.err
    assert "phonograd devices --restore now" in said.err
    assert phono("devices", "--restore", "--json").document["phones"][0]["leftovers"] == []
    assert settings_of(phone) == before
    assert not phone.fixed_performance
    assert not work.exists()


def settings_of(phone: StandInPhone) -> dict[str, str]:
    """What a boot does not change."""
    return {name: value for name, value in phone.rest.items() if name != "wakefulness"}


def test_restoring_removes_kept_files_but_not_those_of_a_session(
    adb: Adb, watched: StandInPhone, phono: Run, tmp_path: Path
) -> None:
    (tmp_path / "a").write_text("kept")
    with PhoneSession(adb, watched.serial, KEPT) as session:
        session.sync({"a": tmp_path / "a"})
        assert phono("devices", "--json").document["phones"][0]["leftovers"] == []
        busy = phono("devices", "--restore")
        assert (busy.code, "is using it; wait" in busy.err) == (22, True)
    assert (work_of(watched) / "a").read_text() == "kept"
    (work_of(watched) / "probe.0123").write_text("an earlier boot")
    assert phono("devices", "--restore").code == 0
    assert not work_of(watched).exists()
