"""adb's commands, each with a timeout; errors distinguish adb, the phone, its storage, and this machine's disk."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from phonograd.android_harness.adb.command import (
    CallResult,
    error_line,
    has_error_line,
    last_line,
    run_adb,
    without_server_notices,
)
from phonograd.android_harness.adb.failures import (
    connection_lost_error,
    is_server_failure,
    is_storage_full,
    is_storage_refusal,
    server_start_error,
    server_timeout_error,
    storage_error,
)
from phonograd.android_harness.adb.marked_script import MarkedScript
from phonograd.android_harness.adb.process import PhoneProcess
from phonograd.android_harness.adb.states import ABSENT, HEADER, AdbDevice, parse_devices
from phonograd.android_harness.adb.tool import AdbTool
from phonograd.android_harness.errors import AdbError, PhoneRunError, PhoneTimeoutError
from phonograd.device_runtime.base.errors import PhonogradError, StorageError
from phonograd.device_runtime.base.files import atomic_path, require_writable


@dataclass(frozen=True)
class Timeouts:
    """Timeout of each kind of call in seconds. A push may take `push` plus its bytes divided by `push_bytes_per_s`."""

    listing: float = 20.0  # adb's server may have to start first
    shell: float = 30.0
    push: float = 30.0
    push_bytes_per_s: float = 500_000.0  # far below any USB cable; a slow wireless link
    pull: float = 600.0
    server_pause: float = 0.5  # before a server that did not start is tried again


@dataclass(frozen=True)
class ShellResult:
    """The status and the exact output of a script that ran on a phone."""

    status: int
    out: str
    err: str


class Adb:
    """adb, for any number of phones and threads.

    Phones are identified by serial, or by a full name of `devices`. adb reads ANDROID_ADB_SERVER_PORT and
    ADB_SERVER_SOCKET from the environment.
    """

    def __init__(self, tool: AdbTool, timeouts: Timeouts = Timeouts()):
        self.tool = tool
        self.timeouts = timeouts
        self._transports: dict[str, str] = {}

    def devices(self) -> list[AdbDevice]:
        """The phones that adb lists, in its order and in any state; starts adb's server if none runs.

        Raises AdbError.
        """
        called = self._call(["devices", "-l"], self.timeouts.listing)
        if called.code is None:
            raise server_timeout_error(self.timeouts.listing)
        if HEADER not in called.out:
            raise server_start_error(
                called.output if called.output.strip() else f"`adb devices` printed nothing, exit code {called.code}"
            )
        phones = parse_devices(called.out, self._call(["devices"], self.timeouts.listing).out)
        self._transports = {
            phone.full_name: phone.properties["transport_id"] for phone in phones if "transport_id" in phone.properties
        }
        return phones

    def state(self, serial: str) -> str:
        """A phone's state in adb's list, such as "device", "offline" or "unauthorized"; "absent" if it is not listed.

        Raises AdbError.
        """
        return next((phone.state for phone in self.devices() if serial in (phone.serial, phone.full_name)), ABSENT)

    def shell(
        self,
        serial: str,
        script: str,
        timeout: float | None = None,
        check: bool = False,
        doing: str = "running a script",
    ) -> ShellResult:
        """Run a script in the phone's shell, without stdin. `doing` describes it in messages.

        Raises PhoneLostError if the connection was lost, PhoneTimeoutError if the phone did not answer in time,
        AdbError; with `check` also PhoneStorageError or PhoneRunError for a status other than 0, quoting the last line.
        """
        seconds = self.timeouts.shell if timeout is None else timeout
        marked = MarkedScript(script)
        arguments = [*self._address(serial), "shell", "-n", marked.text]
        called = self._call(arguments, seconds, lambda printed: marked.split(printed)[1] is not None)
        out, status = marked.split(called.out)
        if status is None:
            raise self._unfinished_error(serial, doing, replace(called, out=""), seconds)
        result = ShellResult(status, out, without_server_notices(called.err))
        if check and status != 0:
            said = last_line(result.err) or last_line(out) or "no message"
            if is_storage_full(result.err):
                raise storage_error(serial, doing, result.err)
            raise PhoneRunError(f"phone {serial}: status {status} while {doing}: {said}")
        return result

    def start(self, serial: str, script: str, doing: str = "running a script") -> PhoneProcess:
        """Start a script on a phone, to read and write lines. Raises AdbError if adb does not start.

        Errors on the phone show in the process: if the phone is not connected, it ends at once.
        """
        command: list[str | Path] = [self.tool.path, *self._address(serial), "shell"]
        return PhoneProcess(command, serial, MarkedScript(script), doing, lambda: self.state(serial))

    def push(self, serial: str, local: Path, remote: str, timeout: float | None = None) -> None:
        """Copy a file to `remote`, a file's path on the phone.

        Raises PhoneStorageError, PhoneLostError, PhoneTimeoutError, AdbError; StorageError if `local` can't be read.
        """
        doing = f"pushing {local.name}"
        try:
            with local.open("rb") as file:
                nbytes = file.seek(0, 2)
        except OSError as error:
            raise StorageError(f"{local}: cannot read: {error.strerror}") from error
        seconds = self.timeouts.push + nbytes / self.timeouts.push_bytes_per_s if timeout is None else timeout
        called = self._call([*self._address(serial), "push", local.absolute(), remote], seconds)
        if called.code == 0 and "1 file pushed" in called.output and not has_error_line(called.output):
            return
        if called.code is not None and is_storage_refusal(called.output):
            raise storage_error(serial, f"{doing} to {remote}", called.output)
        raise self._unfinished_error(serial, doing, called, seconds)

    def pull(self, serial: str, remote: str, local: Path, timeout: float | None = None) -> None:
        """Copy a phone's file to `local`, which appears whole or not at all.

        Raises PhoneStorageError if the phone has no such file or cannot read it, StorageError if this machine cannot
        write it, PhoneLostError, PhoneTimeoutError, AdbError.
        """
        doing = f"pulling {remote}"
        seconds = self.timeouts.pull if timeout is None else timeout
        require_writable(local)
        with atomic_path(local) as partial:
            called = self._call([*self._address(serial), "pull", remote, partial.absolute()], seconds)
            if called.output.rstrip().endswith("is not a directory"):  # the file that it is to be
                raise storage_error(serial, doing, f"adb: {remote}: Is a directory")
            if called.code == 0 and "1 file pulled" in called.output and partial.is_file():
                return
            if called.code is not None and _own_disk_refused(called.output, partial):
                reason = error_line(called.output).rpartition(": ")[2]
                raise StorageError(f"{local}: cannot write: {reason}; free space or choose another place")
            if called.code is not None and is_storage_refusal(called.output):
                raise storage_error(serial, doing, called.output)
            raise self._unfinished_error(serial, doing, called, seconds)

    def _address(self, serial: str) -> list[str]:
        transport = self._transports.get(serial)
        return ["-s", serial] if transport is None else ["-t", transport]

    def _call(
        self, arguments: Sequence[str | Path], timeout: float, complete: Callable[[str], bool] = lambda _: False
    ) -> CallResult:
        """Call adb, twice if its server did not start: when several threads start one, only one succeeds."""
        called = run_adb([self.tool.path, *arguments], timeout, complete)
        if called.code not in (0, None) and is_server_failure(called.output):
            time.sleep(self.timeouts.server_pause)
            called = run_adb([self.tool.path, *arguments], timeout, complete)
        return called

    def _unfinished_error(self, serial: str, doing: str, called: CallResult, seconds: float) -> PhonogradError:
        if is_server_failure(called.output):
            return server_start_error(called.output)
        try:
            state = self.state(serial)
        except AdbError as error:
            return error
        if called.code is not None:
            return connection_lost_error(serial, doing, called.output, state)
        return PhoneTimeoutError(
            f"phone {serial}: did not answer within {seconds:.0f} s while {doing}; adb's state: {state}; "
            "unlock it, plug it in again and repeat the command"
        )


def _own_disk_refused(output: str, partial: Path) -> bool:
    return any(
        f"cannot {verb} '{partial.absolute()}'" in output
        for verb in ("create", "write", "open", "close", "create file")
    )
