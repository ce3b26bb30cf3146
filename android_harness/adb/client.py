"""adb's calls, each with a timeout; what went wrong told apart: adb, the phone, its storage, this machine's disk."""

import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path

from phonograd.android_harness.adb.calling import Called, call, complains, complaint, last_line, without_noise
from phonograd.android_harness.adb.failures import (
    lost,
    server_error,
    server_failed,
    server_silent,
    storage_error,
    storage_full,
    storage_refused,
)
from phonograd.android_harness.adb.finding import AdbTool
from phonograd.android_harness.adb.marked import Marked
from phonograd.android_harness.adb.process import PhoneProcess
from phonograd.android_harness.adb.states import ABSENT, HEADER, Attached, parse_list
from phonograd.android_harness.errors import AdbError, PhoneRunError, PhoneSilentError
from phonograd.device_runtime.base.errors import PhonogradError, StorageError
from phonograd.device_runtime.base.files import atomic_path, require_place


@dataclass(frozen=True)
class Timeouts:
    """Seconds each kind of call may take. A push may take `push` and its bytes at `push_bytes_per_s` more."""

    listing: float = 20.0  # adb's server may have to start first
    shell: float = 30.0
    push: float = 30.0
    push_bytes_per_s: float = 500_000.0  # far below any USB cable; a slow wireless link
    pull: float = 600.0
    server_pause: float = 0.5  # before a server that did not start is tried again


@dataclass(frozen=True)
class ShellResult:
    """What a script on a phone came to: its status, and what it printed, exactly."""

    status: int
    out: str
    err: str


class Adb:
    """One adb for all phones; any number of threads may use it at once.

    Phones are named by serial. The environment's ANDROID_ADB_SERVER_PORT and ADB_SERVER_SOCKET are adb's to read.
    """

    def __init__(self, tool: AdbTool, timeouts: Timeouts = Timeouts()):
        self.tool = tool
        self.timeouts = timeouts

    def attached(self) -> list[Attached]:
        """The phones adb lists, in its order, whatever their state; starts adb's server if none runs.

        Raises AdbError.
        """
        called = self._call(["devices", "-l"], self.timeouts.listing)
        if called.code is None:
            raise server_silent(self.timeouts.listing)
        if HEADER not in called.out:
            raise server_error(
                called.said if called.said.strip() else f"`adb devices` printed nothing, exit code {called.code}"
            )
        return parse_list(called.out)

    def state(self, serial: str) -> str:
        """A phone's state in adb's list: "device", "offline", "unauthorized", "no permissions"; "absent" if not in it.

        Raises AdbError.
        """
        return next((phone.state for phone in self.attached() if phone.serial == serial), ABSENT)

    def shell(
        self,
        serial: str,
        script: str,
        timeout: float | None = None,
        check: bool = False,
        doing: str = "running a script",
    ) -> ShellResult:
        """Run a script in the phone's shell, without stdin. `doing` names it in messages.

        Raises PhoneLostError if it broke off, PhoneSilentError if the phone did not answer in time, AdbError; with
        `check` also PhoneStorageError or PhoneRunError for a status other than 0, quoting its last line.
        """
        seconds = self.timeouts.shell if timeout is None else timeout
        marked = Marked(script)
        called = self._call(["-s", serial, "shell", "-n", marked.text], seconds)
        out, status = marked.split(called.out)
        if status is None:
            raise self._broke_off(serial, doing, replace(called, out=""), seconds)
        result = ShellResult(status, out, without_noise(called.err))
        if check and status != 0:
            said = last_line(result.err) or last_line(out) or "no message"
            if storage_full(result.err):
                raise storage_error(serial, doing, result.err)
            raise PhoneRunError(f"phone {serial}: status {status} while {doing}: {said}")
        return result

    def start(self, serial: str, script: str, doing: str = "running a script") -> PhoneProcess:
        """Start a script on a phone, to read its lines and to send it some. Raises AdbError if adb does not start.

        What happens on the phone shows in the process: a phone that is not there ends it at once.
        """
        command: list[str | Path] = [self.tool.path, "-s", serial, "shell"]
        return PhoneProcess(command, serial, Marked(script), doing, lambda: self.state(serial))

    def push(self, serial: str, local: Path, remote: str, timeout: float | None = None) -> None:
        """Copy a file to `remote`, a file's path on the phone.

        Raises PhoneStorageError, PhoneLostError, PhoneSilentError, AdbError; StorageError if `local` can't be read.
        """
        doing = f"pushing {local.name}"
        try:
            with local.open("rb") as file:
                nbytes = file.seek(0, 2)
        except OSError as error:
            raise StorageError(f"{local}: cannot read: {error.strerror}") from error
        seconds = self.timeouts.push + nbytes / self.timeouts.push_bytes_per_s if timeout is None else timeout
        called = self._call(["-s", serial, "push", local.absolute(), remote], seconds)
        if called.code == 0 and "1 file pushed" in called.said and not complains(called.said):
            return
        if called.code is not None and storage_refused(called.said):
            raise storage_error(serial, f"{doing} to {remote}", called.said)
        raise self._broke_off(serial, doing, called, seconds)

    def pull(self, serial: str, remote: str, local: Path, timeout: float | None = None) -> None:
        """Copy a phone's file to `local`, which appears whole or not at all.

        Raises PhoneStorageError if the phone has no such file or refuses, StorageError if this machine's disk does,
        PhoneLostError, PhoneSilentError, AdbError.
        """
        doing = f"pulling {remote}"
        seconds = self.timeouts.pull if timeout is None else timeout
        require_place(local)
        with atomic_path(local) as partial:
            called = self._call(["-s", serial, "pull", remote, partial.absolute()], seconds)
            if partial.is_dir():
                shutil.rmtree(partial)
                raise storage_error(serial, doing, f"adb: {remote}: Is a directory")
            if called.code == 0 and "1 file pulled" in called.said and partial.is_file():
                return
            if called.code is not None and _own_disk_refused(called.said, partial):
                reason = complaint(called.said).rpartition(": ")[2]
                raise StorageError(f"{local}: cannot write: {reason}; free space or choose another place")
            if called.code is not None and storage_refused(called.said):
                raise storage_error(serial, doing, called.said)
            raise self._broke_off(serial, doing, called, seconds)

    def _call(self, arguments: list[str | Path], timeout: float) -> Called:
        """Call adb. One more time if its server did not start: of several threads that start one, one wins."""
        called = call([self.tool.path, *arguments], timeout)
        if called.code not in (0, None) and server_failed(called.said):
            time.sleep(self.timeouts.server_pause)
            called = call([self.tool.path, *arguments], timeout)
        return called

    def _broke_off(self, serial: str, doing: str, called: Called, seconds: float) -> PhonogradError:
        """Why a call did not come to its end: adb's server is asked how it lists the phone now."""
        if server_failed(called.said):
            return server_error(called.said)
        try:
            state = self.state(serial)
        except AdbError as error:
            return error
        if called.code is not None:
            return lost(serial, doing, called.said, state)
        return PhoneSilentError(
            f"phone {serial}: did not answer within {seconds:.0f} s while {doing}; adb calls its state {state!r}: "
            "unlock it, plug it in again and repeat the command"
        )


def _own_disk_refused(said: str, partial: Path) -> bool:
    return any(
        f"cannot {verb} '{partial.absolute()}'" in said for verb in ("create", "write", "open", "close", "create file")
    )
