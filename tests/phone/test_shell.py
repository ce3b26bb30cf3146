"""Commands on the stand-in phone."""

import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tests.phone.stand_in import AdbServer, StandInPhone
from tests.support.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.standin


@contextmanager
def client(adb_server: AdbServer, phone: StandInPhone, *arguments: str) -> "Iterator[subprocess.Popen[bytes]]":
    """A running adb client; killed at the end if it still runs."""
    with subprocess.Popen(
        [adb_server.adb, "-s", phone.serial, *arguments],
        env=adb_server.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def shell(adb_server: AdbServer, phone: StandInPhone, script: str) -> str:
    done = adb_server.run("-s", phone.serial, "shell", script)
    assert (done.stderr, done.returncode) == ("", 0)
    return done.stdout


@pytest.mark.both_adbs
def test_a_command_gives_its_output_apart_from_its_errors_and_its_exit_code(
    adb_server: AdbServer, phone: StandInPhone
) -> None:
    done = adb_server.run("-s", phone.serial, "shell", "echo out; echo err >&2; exit 7")
    assert (done.stdout, done.stderr, done.returncode) == ("out\n", "err\n", 7)
    codes = {"true": 0, "exit 255": 255, "kill -9 $$": 137, "nothing-like-it": 127}
    found = {script: adb_server.run("-s", phone.serial, "shell", script).returncode for script in codes}
    assert found == codes


def test_it_is_an_arm64_android_where_one_is_shell(adb_server: AdbServer, phone: StandInPhone) -> None:
    script = "uname -m; id -un; pwd; echo $ANDROID_ROOT $TMPDIR; case $KSH_VERSION in *MIRBSD*) echo mksh;; esac"
    assert shell(adb_server, phone, script).split() == ["aarch64", "shell", "/", "/system", "/data/local/tmp", "mksh"]


def test_shell_may_write_nowhere_but_in_its_folder(adb_server: AdbServer, phone: StandInPhone) -> None:
    script = "for f in /x /system/x /data/x /data/local/x /data/local/tmp/x; do touch $f && echo $f; done"
    done = adb_server.run("-s", phone.serial, "shell", script)
    assert done.stdout == "/data/local/tmp/x\n"
    assert done.stderr.splitlines() == [
        "touch: '/x': Read-only file system",
        "touch: '/system/x': Read-only file system",
        "touch: '/data/x': Permission denied",
        "touch: '/data/local/x': Permission denied",
    ]


@pytest.mark.both_adbs
def test_bytes_go_through_unchanged_both_ways(adb_server: AdbServer, phone: StandInPhone) -> None:
    data = bytes(range(256)) * 1000 + os.urandom(300_000)
    with client(adb_server, phone, "shell", "cat") as process:
        out, err = process.communicate(data, timeout=PATIENCE_SECONDS)
    assert (out, err, process.returncode) == (data, b"", 0)


@pytest.mark.both_adbs
def test_stdin_ends_where_the_client_closes_it(adb_server: AdbServer, phone: StandInPhone) -> None:
    with client(adb_server, phone, "shell", "while read -r line; do echo got $line; done; echo end; exit 3") as process:
        out, _ = process.communicate(b"one\ntwo\n", timeout=PATIENCE_SECONDS)
    assert (out, process.returncode) == (b"got one\ngot two\nend\n", 3)


def test_a_conversation_line_by_line(adb_server: AdbServer, phone: StandInPhone) -> None:
    with client(adb_server, phone, "shell", "while read -r line; do echo got $line; done") as process:
        assert process.stdin is not None and process.stdout is not None
        for word in (b"one", b"two", b"three"):
            process.stdin.write(word + b"\n")
            process.stdin.flush()
            assert process.stdout.readline() == b"got " + word + b"\n"
        process.stdin.close()
        assert process.wait(PATIENCE_SECONDS) == 0


def test_many_shells_at_once(adb_server: AdbServer, phone: StandInPhone) -> None:
    def one(number: int) -> str:
        return shell(adb_server, phone, f"i=0; while [ $i -lt 200 ]; do echo {number}; i=$((i + 1)); done")

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(one, range(16)))
    assert answers == [f"{number}\n" * 200 for number in range(16)]
    assert phone.counters.shells == 16


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
    script = "trap '' HUP; cat; echo end >/data/local/tmp/end; exec sleep 1000"
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
        shell(adb_server, phone, f"kill {child}")
        assert process.wait(PATIENCE_SECONDS) == 4
    assert shell(adb_server, phone, "sleep 1000 </dev/null >/dev/null 2>&1 & echo at once") == "at once\n"
    assert phone.processes() == ["sleep 1000"]
