"""What of a real phone and of real adb clients the harness builds on: shells, files, programs, broken connections.

The faults that a test can give a phone have their tests where the harness meets them, in tests/android_harness.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from phonograd.device_runtime.native_build import build_phone_binary
from tests.phone.stand_in import A53, A76, MAX, AdbServer, PhoneSpec, StandInPhone
from tests.support.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.standin
FOLDER = "/data/local/tmp"


@contextmanager
def client(adb_server: AdbServer, phone: StandInPhone, *arguments: str) -> "Iterator[subprocess.Popen[bytes]]":
    """A running adb client; killed at the end if it still runs."""
    line, pipe = [str(adb_server.adb), "-s", phone.serial, *arguments], subprocess.PIPE
    with subprocess.Popen(line, env=adb_server.environment, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        try:
            yield process
        finally:
            process.kill()


def run(adb_server: AdbServer, phone: StandInPhone, *arguments: object, code: int = 0) -> str:
    """What a client prints that ends with this code."""
    done = adb_server.run("-s", phone.serial, *map(str, arguments))
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def random_file(path: Path, nbytes: int) -> Path:
    path.write_bytes(os.urandom(nbytes))
    return path


@pytest.mark.parametrize("spec", [A53, A76, MAX], ids=lambda spec: spec.cpu)
def test_arm64_programs_run_and_see_this_phones_cores(adb_server: AdbServer, spec: PhoneSpec) -> None:
    with StandInPhone(spec) as phone:
        adb_server.connect(phone)
        run(adb_server, phone, "push", build_phone_binary().path, f"{FOLDER}/phonograd-phone")
        info = json.loads(run(adb_server, phone, "shell", f"{FOLDER}/phonograd-phone info"))
        numbers = phone.cores()
    little = len(numbers) // 2
    speeds = [spec.little_khz] * little + [spec.big_khz] * (len(numbers) - little)
    assert [core["core"] for core in info["cores"]] == numbers
    assert [core["max_khz"] for core in info["cores"]] == speeds
    assert ("dot" in info["cpu"]["features"]) == (spec.cpu != "cortex-a53")


def test_a_disconnected_client_ends_its_shell_but_not_background_processes(
    adb_server: AdbServer, phone: StandInPhone
) -> None:
    """adbd sends SIGHUP only to the shell, and mksh forwards it only to the child it waits for, so orphans remain."""
    with client(adb_server, phone, "shell", "sleep 1000 & echo started; sleep 2000; echo never") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n"
        until(lambda: {"sleep 1000", "sleep 2000"} <= set(phone.processes()))
        process.kill()
    until(lambda: phone.processes() == ["sleep 1000"])


def test_a_shell_that_ignores_the_hang_up_lives_on_without_its_pipes(
    adb_server: AdbServer, phone: StandInPhone
) -> None:
    script = f"trap '' HUP; cat; echo end >{FOLDER}/end; exec sleep 1000"
    with client(adb_server, phone, "shell", script) as process:
        until(lambda: "cat" in phone.processes())
        process.kill()
    until(lambda: phone.processes() == ["sleep 1000"])
    assert (phone.root / "data/local/tmp/end").read_text("ascii") == "end\n"


def test_a_background_child_with_the_output_keeps_the_shell_open(adb_server: AdbServer, phone: StandInPhone) -> None:
    with client(adb_server, phone, "shell", "sleep 1000 & echo $!; exit 4") as process:
        assert process.stdout is not None
        child = process.stdout.readline().decode().strip()
        assert process.poll() is None
        run(adb_server, phone, "shell", f"kill {child}")
        assert process.wait(PATIENCE_SECONDS) == 4
    assert run(adb_server, phone, "shell", "sleep 1000 </dev/null >/dev/null 2>&1 & echo at once") == "at once\n"
    assert phone.processes() == ["sleep 1000"]


@pytest.mark.both_adbs
@pytest.mark.parametrize("spec", [A53, A76], ids=["the first version of everything", "the second"])
def test_files_go_there_and_back(adb_server: AdbServer, spec: PhoneSpec, tmp_path: Path) -> None:
    with StandInPhone(spec) as phone:
        adb_server.connect(phone)
        for nbytes in (0, 1, 65535, 65536, 65537, 3_000_000):
            before, there = phone.counters, f"{FOLDER}/new/folder/{nbytes}"
            run(adb_server, phone, "push", random_file(tmp_path / "local", nbytes), there)
            run(adb_server, phone, "pull", there, tmp_path / "back")
            assert (tmp_path / "back").read_bytes() == (tmp_path / "local").read_bytes(), nbytes
            assert phone.counters.pushed - before.pushed == phone.counters.pulled - before.pulled == nbytes


BOOT_AND_WAIT = """
import time
from tests.phone.stand_in import StandInPhone
phone = StandInPhone()
phone.boot()
print(phone.root, flush=True)
time.sleep(1000)
"""


def test_a_phone_ends_with_the_process_that_booted_it() -> None:
    with subprocess.Popen([sys.executable, "-c", BOOT_AND_WAIT], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        root = Path(process.stdout.readline().strip())
        assert root.is_dir()
        os.kill(process.pid, signal.SIGKILL)
    until(lambda: not root.parent.exists())
