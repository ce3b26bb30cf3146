"""What becomes of adb's clients, and of the phone, when something goes wrong."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.phone.fixtures import adb_path
from tests.phone.stand_in import A76, AdbServer, StandInPhone
from tests.phone.test_shell import client, shell
from tests.phone.test_sync import random_file
from tests.support.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.standin
REMOTE = "/data/local/tmp/file"


def test_unplugged_is_gone_and_plugged_is_back(adb_server: AdbServer, phone: StandInPhone) -> None:
    shell(adb_server, phone, "echo kept >/data/local/tmp/kept")
    phone.unplug()
    until(lambda: adb_server.state(phone.serial) in {"offline", "absent"})
    adb_server.disconnect(phone)
    adb_server.run("connect", phone.serial)
    assert adb_server.state(phone.serial) != "device"
    phone.plug()
    adb_server.connect(phone)
    assert shell(adb_server, phone, "cat /data/local/tmp/kept") == "kept\n"


@pytest.mark.both_adbs
def test_unplugged_in_a_shell(adb_server: AdbServer, phone: StandInPhone) -> None:
    with client(adb_server, phone, "shell", "trap '' HUP; echo started; sleep 1000; echo over") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n"
        phone.unplug()
        out, _ = process.communicate(timeout=PATIENCE_SECONDS)
        assert out == b""
        # adb 29 says 0 here, as if all were well: what the harness may not rely on
        assert process.returncode == (0 if adb_server.adb == adb_path("adb29") else 255)
    until(lambda: "sleep 1000" in phone.processes())  # nobody ended it


@pytest.mark.both_adbs
def test_dropped_in_the_middle_of_a_push(adb_server: AdbServer, phone: StandInPhone, tmp_path: Path) -> None:
    phone.drop_in_push(after_bytes=1_000_000)
    done = adb_server.run("-s", phone.serial, "push", str(random_file(tmp_path / "local", 5_000_000)), REMOTE)
    assert done.returncode == 1
    until(lambda: not (phone.root / REMOTE[1:]).exists())  # adbd deletes what came half
    assert 1_000_000 < phone.counters.pushed <= 1_000_000 + (1 << 16)
    until(lambda: adb_server.state(phone.serial) in {"offline", "absent"})


@pytest.mark.both_adbs
def test_dropped_in_the_middle_of_a_shells_output(adb_server: AdbServer, phone: StandInPhone) -> None:
    phone.drop_in_shell(after_bytes=10)
    with client(adb_server, phone, "shell", "while read -r line; do echo $line; done") as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(b"line1\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"line1\n"
        out, _ = process.communicate(b"line2\n", timeout=PATIENCE_SECONDS)
    assert out == b""
    until(lambda: adb_server.state(phone.serial) in {"offline", "absent"})


@pytest.mark.both_adbs
def test_silent_in_a_shell_and_to_new_connections(adb_server: AdbServer, phone: StandInPhone) -> None:
    with client(adb_server, phone, "shell", "while true; do echo line; sleep 0.05; done") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"line\n"
        phone.go_silent()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        assert adb_server.state(phone.serial) == "device"  # as far as adb knows
        with pytest.raises(subprocess.TimeoutExpired):
            adb_server.run("-s", phone.serial, "shell", "echo lost", timeout=1)
        process.kill()
    adb_server.disconnect(phone)
    with AdbServer(adb_server.adb) as other:
        assert _connects_in_vain(other, phone) in {"offline", "absent", "connecting"}
    phone.speak()
    adb_server.connect(phone)
    assert shell(adb_server, phone, "echo back") == "back\n"


def _connects_in_vain(server: AdbServer, phone: StandInPhone) -> str:
    try:
        server.run("connect", phone.serial, timeout=1)
    except subprocess.TimeoutExpired:
        return "connecting"
    return server.state(phone.serial)


@pytest.mark.both_adbs
def test_unauthorised_until_somebody_taps_allow(adb_server: AdbServer) -> None:
    with StandInPhone(replace(A76, trusts_hosts=False)) as phone:
        adb_server.connect(phone, expected="unauthorized")
        done = adb_server.run("-s", phone.serial, "shell", "echo never")
        assert done.returncode == 1
        assert "unauthorized" in done.stderr
        phone.authorise()
        adb_server.wait_for(phone, "device")
        assert shell(adb_server, phone, "echo allowed") == "allowed\n"


def test_a_phone_remembers_trusted_hosts(adb_server: AdbServer) -> None:
    with StandInPhone(replace(A76, trusts_hosts=False)) as phone:
        adb_server.connect(phone, expected="unauthorized")
        phone.authorise()
        adb_server.wait_for(phone, "device")
        adb_server.disconnect(phone)
        adb_server.connect(phone)
        adb_server.disconnect(phone)
        with AdbServer(adb_server.adb) as stranger:
            stranger.connect(phone, expected="unauthorized")


def test_a_reboot_ends_everything_but_data(adb_server: AdbServer, phone: StandInPhone) -> None:
    before = phone.boot_id
    shell(adb_server, phone, "echo kept >/data/local/tmp/kept; setsid sleep 1000 </dev/null >/dev/null 2>&1 &")
    until(lambda: phone.processes() == ["setsid sleep 1000"])  # one process: toybox runs its own commands itself
    phone.reboot(seconds=0.5)
    assert phone.processes() == []
    until(lambda: adb_server.state(phone.serial) in {"offline", "absent"})
    until(lambda: phone.boot_id != before)
    adb_server.disconnect(phone)
    adb_server.connect(phone)
    assert (
        shell(adb_server, phone, "cat /data/local/tmp/kept /proc/sys/kernel/random/boot_id")
        == f"kept\n{phone.boot_id}\n"
    )


def test_adb_reboot_reboots(adb_server: AdbServer, phone: StandInPhone) -> None:
    before = phone.boot_id
    assert adb_server.run("-s", phone.serial, "reboot").returncode == 0
    until(lambda: phone.boot_id != before)
    adb_server.disconnect(phone)
    adb_server.connect(phone)


def test_a_slow_link_is_slow(adb_server: AdbServer, phone: StandInPhone, tmp_path: Path) -> None:
    local = str(random_file(tmp_path / "local", 300_000))
    phone.slow_link(bytes_per_s=300_000)
    with client(adb_server, phone, "push", local, REMOTE) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)  # it takes a second at the least
        phone.slow_link(None)
        assert process.wait(PATIENCE_SECONDS) == 0
    assert (phone.root / REMOTE[1:]).read_bytes() == Path(local).read_bytes()


def test_a_second_host_is_refused_as_long_as_the_first_is_there(adb_server: AdbServer, phone: StandInPhone) -> None:
    with AdbServer(adb_server.adb) as second:
        assert _connects_in_vain(second, phone) in {"offline", "absent", "connecting"}
        assert shell(adb_server, phone, "echo mine") == "mine\n"
        second.disconnect(phone)
        adb_server.disconnect(phone)
        second.connect(phone)
        assert shell(second, phone, "echo yours") == "yours\n"


def test_adbs_server_may_restart(adb_server: AdbServer, phone: StandInPhone) -> None:
    adb_server.kill()
    adb_server.start()
    adb_server.connect(phone)
    assert shell(adb_server, phone, "echo again") == "again\n"


def test_heat_battery_and_frequency_show_where_android_shows_them(adb_server: AdbServer, phone: StandInPhone) -> None:
    phone.heat(celsius=61.5, status=3)
    phone.battery(percent=9, charging=False)
    big = phone.cores()[-1]
    phone.set_frequency(big, khz=900_000)
    thermal = shell(adb_server, phone, "dumpsys thermalservice")
    assert "Thermal Status: 3\n" in thermal
    current = thermal.partition("Current temperatures from HAL:\n")[2]
    assert f"Temperature{{mValue=61.5, mType=0, mName=CPU{big}, mStatus=3}}" in current
    battery = shell(adb_server, phone, "dumpsys battery").splitlines()
    assert {"  level: 9", "  temperature: 615", "  USB powered: false", "  status: 3"} <= set(battery)
    folder = f"/sys/devices/system/cpu/cpu{big}/cpufreq"
    assert shell(adb_server, phone, f"cat {folder}/scaling_cur_freq {folder}/scaling_max_freq") == "900000\n900000\n"


def test_a_phone_that_throttles_slows_down_under_load_and_recovers(adb_server: AdbServer, phone: StandInPhone) -> None:
    big = phone.cores()[-1]
    frequency = phone.root / f"sys/devices/system/cpu/cpu{big}/cpufreq/scaling_cur_freq"
    full = int(frequency.read_text("ascii"))

    def khz() -> int | None:
        """The frequency; None while it is being written."""
        text = frequency.read_text("ascii")
        return int(text) if text else None

    written = frequency.stat().st_mtime_ns
    phone.throttle_under_load(floor=0.5, step_seconds=0.02)
    until(lambda: frequency.stat().st_mtime_ns > written, "a step of the governor")
    assert khz() in {full, None}
    with client(adb_server, phone, "shell", "while :; do :; done") as process:
        until(lambda: khz() == full // 2, "half of its frequency")
        process.kill()
    until(lambda: khz() == full, "its full frequency again")


def test_phones_are_isolated(three_phones: list[StandInPhone], adb_server: AdbServer) -> None:
    first, second, third = three_phones
    shell(adb_server, first, "echo mine >/data/local/tmp/mine; sleep 1000 </dev/null >/dev/null 2>&1 &")
    assert [shell(adb_server, phone, "ls /data/local/tmp") for phone in (first, second)] == ["mine\n", ""]
    second.unplug()
    assert [shell(adb_server, phone, "getprop ro.product.model") for phone in (first, third)] == [
        "Stand-in A53\n",
        "Stand-in max\n",
    ]
    assert [phone.processes() for phone in three_phones] == [["sleep 1000"], [], []]


BOOT_AND_WAIT = """
import sys, time
from tests.phone.stand_in import StandInPhone
phone = StandInPhone(port=int(sys.argv[1]))
phone.boot()
print(phone.root, flush=True)
time.sleep(1000)
"""


def test_a_phone_ends_with_the_process_that_booted_it(tmp_path: Path) -> None:
    """Also when that is killed, with all that runs on the phone."""
    with subprocess.Popen([sys.executable, "-c", BOOT_AND_WAIT, "0"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        root = Path(process.stdout.readline().strip())
        assert root.is_dir()
        os.kill(process.pid, signal.SIGKILL)
    until(lambda: not root.parent.exists())
