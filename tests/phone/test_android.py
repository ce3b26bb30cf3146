"""What the stand-in phone says of itself, in Android's words, and that arm64 programs run on it."""

import json
import re
from pathlib import Path

import pytest

from phonograd.device_runtime.native_build import build_phone_binary
from tests.phone.stand_in import A53, A76, MAX, AdbServer, PhoneSpec, StandInPhone
from tests.phone.test_shell import shell
from tests.phone.test_sync import push

pytestmark = pytest.mark.standin


@pytest.fixture(scope="session")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_phone_binary(tmp_path_factory.mktemp("phone") / "phonograd-phone").path


@pytest.mark.both_adbs
def test_adb_lists_it_as_a_phone(adb_server: AdbServer, phone: StandInPhone) -> None:
    lines = adb_server.run("devices", "-l").stdout.splitlines()
    (line,) = [line for line in lines if line.startswith(phone.serial)]
    assert line.split()[1:5] == ["device", "product:standin_a76", "model:Stand_in_A76", "device:standin_a76"]


def test_an_older_android_lacks_what_came_later(adb_server: AdbServer) -> None:
    with StandInPhone(A53) as phone:
        adb_server.connect(phone)
        done = adb_server.run("-s", phone.serial, "shell", "dumpsys thermalservice; getprop ro.soc.model")
        assert (done.stdout, done.stderr) == ("\n", "Can't find service: thermalservice\n")
        power = adb_server.run("-s", phone.serial, "shell", "cmd power set-fixed-performance-mode-enabled true")
        assert power.returncode == 255


@pytest.mark.parametrize("spec", [A53, A76, MAX], ids=lambda spec: spec.cpu)
def test_arm64_programs_run_and_see_this_phones_cores(adb_server: AdbServer, spec: PhoneSpec, binary: Path) -> None:
    with StandInPhone(spec) as phone:
        adb_server.connect(phone)
        push(adb_server, phone, binary, "/data/local/tmp/phonograd-phone")
        info = json.loads(shell(adb_server, phone, "/data/local/tmp/phonograd-phone info"))
        numbers = phone.cores()
    little = len(numbers) // 2
    speeds = [spec.little_khz] * little + [spec.big_khz] * (len(numbers) - little)
    assert [core["core"] for core in info["cores"]] == numbers
    assert [core["max_khz"] for core in info["cores"]] == speeds
    assert ("dot" in info["cpu"]["features"]) == (spec.cpu != "cortex-a53")


def test_cpuinfo_and_sys_agree(adb_server: AdbServer, phone: StandInPhone) -> None:
    cpuinfo = shell(adb_server, phone, "cat /proc/cpuinfo")
    numbers = [int(text) for text in re.findall(r"^processor\t: (\d+)$", cpuinfo, re.MULTILINE)]
    parts = [int(text, 16) for text in re.findall(r"^CPU part\t: (0x\w+)$", cpuinfo, re.MULTILINE)]
    assert numbers == phone.cores()
    assert parts[-1] == A76.big_part
    capacities = shell(adb_server, phone, "cat /sys/devices/system/cpu/cpu*/cpu_capacity").split()
    assert [capacity == "1024" for capacity in capacities] == [part == A76.big_part for part in parts]
    assert f"MemTotal:        {A76.memory_bytes // 1024} kB" in shell(adb_server, phone, "cat /proc/meminfo")


def test_a_program_may_be_pinned_to_each_core(adb_server: AdbServer, phone: StandInPhone) -> None:
    for core in phone.cores():
        mask = f"{1 << core:x}"
        found = shell(adb_server, phone, f"taskset {mask} sh -c 'grep Cpus_allowed: /proc/self/status'")
        assert int(found.split()[1].replace(",", ""), 16) == 1 << core
