"""What real desks do to a bench: each fault has its message and exit code, and leaves no program and no lock behind."""

import dataclasses
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from phonograd.device_runtime.formats.manifest import TrainingConfig
from tests.android_harness.benching import WORK, Benched, bench_by, gone_for_good, tiny, training
from tests.phone.stand_in import A76, AdbServer, StandInPhone
from tests.support.waiting import until

__all__ = ["gone_for_good"]

# The adb whose exit codes tell least.
pytestmark = [pytest.mark.standin, pytest.mark.parametrize("adb_server", ["adb29"], indirect=True)]
ONE_EPOCH = ("--epochs", 1, "--warm-up", 0, "--cooldown", 0, "--no-codecs")


class Failed(Benched):
    """What a bench on one phone did."""

    @property
    def failure(self) -> dict[str, Any]:
        """The only phone's."""
        (phone,) = self.phones
        found: dict[str, Any] = phone["failure"]
        return found


Fails = Callable[..., Failed]


@pytest.fixture
def bench(capfd: pytest.CaptureFixture[str], longer: Path) -> Fails:
    """Run `phonograd phone-bench` for one epoch of some seconds."""

    def run_adb(*options: object, artifacts: Path = longer) -> Failed:
        done = bench_by(capfd)(artifacts, *ONE_EPOCH, "--json", *options)
        return Failed(done.code, done.out, done.err)

    return run_adb


@pytest.fixture(scope="module")
def longer() -> Path:
    """Its epochs take a stand-in some seconds: something can happen in the middle of one."""
    return tiny(TrainingConfig())


@pytest.fixture(scope="module")
def shorter() -> Path:
    """Its epochs take a stand-in a second: for what only has to come to its end."""
    return tiny(TrainingConfig(minibatch=2, bptt=5))


@pytest.fixture
def in_mid_epoch(phone: StandInPhone) -> Iterator[Callable[[Callable[[], object]], None]]:
    """Do something in another thread once the phone trains."""
    threads: list[threading.Thread] = []

    def plan(act: Callable[[], object]) -> None:
        def wait_and_act() -> None:
            until(lambda: training(phone))
            act()

        threads.append(threading.Thread(target=wait_and_act))
        threads[-1].start()

    yield plan
    for thread in threads:
        thread.join()


def assert_clean(phone: StandInPhone) -> None:
    """No program runs, and the lock and the transient files are removed."""
    until(lambda: phone.processes() == [])
    until(lambda: not (phone.root / WORK / "lock").exists())
    assert not (phone.root / WORK / "run").exists()


def reconnect(adb_server: AdbServer, phone: StandInPhone) -> None:
    """As a phone on USB comes back by itself; one over the network does not always."""

    def connected() -> bool:
        adb_server.disconnect(phone)
        adb_server.run("connect", phone.serial)
        return adb_server.state(phone.serial) == "device"

    until(connected)


def test_a_cable_pulled_in_mid_push(gone_for_good: None, phone: StandInPhone, bench: Fails) -> None:
    phone.drop_in_push(after_bytes=300_000)
    done = bench()
    assert done.code == done.failure["exit_code"] == 21
    assert f"phone {phone.serial}: disconnected while files were pushed (cable pulled" in done.failure["message"]
    # Where nothing is compiled yet, a line before it says so.
    assert done.err.splitlines()[-1] == f"phonograd: {done.failure['message']}"
    assert_clean(phone)


def test_a_cable_pulled_while_the_phone_talks(
    gone_for_good: None, phone: StandInPhone, bench: Fails, in_mid_epoch: Any
) -> None:
    in_mid_epoch(lambda: phone.drop_in_shell(after_bytes=100))
    done = bench()
    assert (done.code, done.failure["exit_code"]) == (21, 21)
    assert "disconnected while phonograd-phone train ran (cable pulled" in done.failure["message"]
    assert_clean(phone)


def test_a_phone_that_stops_answering(
    gone_for_good: None, phone: StandInPhone, bench: Fails, in_mid_epoch: Any
) -> None:
    in_mid_epoch(phone.go_silent)
    done = bench("--heartbeat-timeout", 3)
    assert done.code == 21
    assert f"phone {phone.serial}: " in done.failure["message"]
    assert "printed nothing for 3 s while phonograd-phone train" in done.failure["message"]
    phone.speak()
    phone.unplug()
    assert_clean(phone)


def test_a_reboot(adb_server: AdbServer, phone: StandInPhone, bench: Fails, shorter: Path, in_mid_epoch: Any) -> None:
    def reboot() -> None:
        phone.reboot(0.5)
        reconnect(adb_server, phone)

    in_mid_epoch(reboot)
    done = bench()
    assert done.code == 21
    assert done.failure["message"] == (
        f"phone {phone.serial}: rebooted while phonograd-phone train ran; its work is lost, and its settings stay "
        "changed until the next run or phonograd devices --restore: run again"
    )
    assert phone.processes() == []
    again = bench(artifacts=shorter)
    assert again.code == 0, again.err
    assert_clean(phone)


def test_adbs_server_restarts(adb_server: AdbServer, phone: StandInPhone, bench: Fails, in_mid_epoch: Any) -> None:
    def restart() -> None:
        adb_server.kill()
        adb_server.start()
        reconnect(adb_server, phone)

    in_mid_epoch(restart)
    done = bench()
    assert done.code == 21
    assert "the connection was lost while phonograd-phone train ran, and is back" in done.failure["message"]
    assert_clean(phone)


def test_full_storage(phone: StandInPhone, bench: Fails) -> None:
    phone.fill_storage(leave_bytes=1_000_000)
    done = bench()
    assert done.code == done.failure["exit_code"] == 11
    assert "MB of free space needed in /data/local/tmp" in done.failure["message"]
    assert "found 1 MB" in done.failure["message"]
    assert_clean(phone)


def test_storage_that_fills_up_while_files_come(phone: StandInPhone, bench: Fails) -> None:
    real = phone.counters

    def fill() -> None:
        until(lambda: phone.counters.pushed > real.pushed)
        phone.fill_storage(leave_bytes=0)

    phone.slow_link(400_000)
    filling = threading.Thread(target=fill)
    filling.start()
    done = bench()
    filling.join()
    assert done.code == 11
    assert f"phone {phone.serial}: " in done.failure["message"]
    assert "No space left on device" in done.failure["message"]
    phone.slow_link(None)
    assert_clean(phone)


def test_a_low_battery(phone: StandInPhone, bench: Fails) -> None:
    phone.battery(7, charging=False)
    done = bench()
    assert (done.code, done.out) == (20, "")
    assert f"phone {phone.serial}: its battery is at 7 %" in done.err
    assert "charge it" in done.err
    assert_clean(phone)


def test_a_hot_phone(phone: StandInPhone, bench: Fails) -> None:
    phone.heat(62.0, status=3)
    done = bench()
    # No report: it is refused before it is touched. A bench that began would wait for it to cool, and fail later.
    assert (done.code, done.out) == (20, "")
    assert f"phone {phone.serial}: it is hot: thermal status severe" in done.err
    assert_clean(phone)


def test_a_slow_link_takes_longer_and_is_no_fault(phone: StandInPhone, bench: Fails, shorter: Path) -> None:
    phone.slow_link(1_000_000)
    done = bench(artifacts=shorter)
    assert done.code == 0, done.err
    assert_clean(phone)


def test_a_phone_that_authorises_later(adb_server: AdbServer, bench: Fails, shorter: Path) -> None:
    with StandInPhone(dataclasses.replace(A76, trusts_hosts=False)) as shy:
        adb_server.connect(shy, "unauthorized")
        refused = bench()
        assert (refused.code, refused.out) == (20, "")
        assert "tap Allow" in refused.err
        shy.authorise()
        adb_server.wait_for(shy, "device")
        done = bench(artifacts=shorter)
        assert done.code == 0, done.err
        assert_clean(shy)


def test_an_aborted_run_leaves_nothing_behind(phone: StandInPhone, bench: Fails, longer: Path, shorter: Path) -> None:
    line = [sys.executable, "-m", "phonograd", "phone-bench", longer, *ONE_EPOCH, "--quiet"]
    with subprocess.Popen([*map(str, line)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        until(lambda: training(phone))
        process.send_signal(signal.SIGKILL)
    assert_clean(phone)  # adb's own clients are left running by a kill -9, and end with their pipes
    assert bench(artifacts=shorter).code == 0
    assert not (phone.root / WORK).exists()
