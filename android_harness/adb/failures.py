"""adb's messages as phonograd's errors, each with the next step."""

import re

from phonograd.android_harness.adb.command import error_line
from phonograd.android_harness.adb.states import ABSENT, ONLINE, problem, state_in_messages
from phonograd.android_harness.errors import AdbError, PhoneLostError, PhoneStorageError
from phonograd.device_runtime.base.errors import PhonogradError

# The server does not run, so the command never reached it; retrying is safe.
_NO_SERVER = re.compile(
    r"cannot connect to daemon|failed to start daemon|could not install \*smartsocket\* listener|ADB server didn't ACK"
    r"|failed to check server version|unable to connect to (adb )?daemon|server (is )?not running"
)
_OTHER_VERSION = re.compile(r"adb server version \(\d+\) doesn't match this client \(\d+\)")
_FULL = re.compile(r"No space left on device|Disk quota exceeded|Read-only file system")
_PHONE_STORAGE = re.compile(
    rf"{_FULL.pattern}|Permission denied|couldn't create file|No such file or directory|Not a directory|Is a directory"
    r"|remote object .* does not exist"
)


def is_server_failure(output: str) -> bool:
    """Whether adb could not reach or start its server."""
    return _NO_SERVER.search(output) is not None


def server_start_error(output: str) -> AdbError:
    """The error if adb can't reach or start its server."""
    versions = _OTHER_VERSION.search(output)
    if versions is not None:
        return AdbError(
            f"adb: {versions[0]}: two versions of adb are in use, and each kills the other's server; "
            "use one (which -a adb), or set ANDROID_ADB_SERVER_PORT to another port for phonograd"
        )
    reason = error_line(output).removeprefix("adb: ")
    return AdbError(
        f"adb: its server does not start ({reason}); another program may use its port (5037, or "
        "ANDROID_ADB_SERVER_PORT): run adb kill-server, or choose another port"
    )


def server_timeout_error(seconds: float) -> AdbError:
    """The error if adb's server does not answer."""
    return AdbError(
        f"adb: did not answer within {seconds:.0f} s; its server hangs, or another program uses its port (5037, or "
        "ANDROID_ADB_SERVER_PORT): run adb kill-server, or choose another port"
    )


def is_storage_full(output: str) -> bool:
    """Whether a program on the phone could not write because storage is full or read-only."""
    return _FULL.search(output) is not None


def is_storage_refusal(output: str) -> bool:
    """Whether a phone could not read or write a file."""
    return _PHONE_STORAGE.search(output) is not None


def storage_error(serial: str, doing: str, output: str) -> PhoneStorageError:
    """The error for a phone that could not read or write a file; `output` is what says so."""
    cure = "check that adb's user can use that path"
    if is_storage_full(output):
        cure = "free space on it (Settings, Storage)"
    refusal = [line for line in output.splitlines() if is_storage_refusal(line)]
    return PhoneStorageError(
        f"phone {serial}: storage error while {doing}: {error_line(refusal[-1])}; {cure} and repeat"
    )


def connection_lost_error(serial: str, doing: str, output: str, state: str) -> PhonogradError:
    """The error of a call that a phone did not finish: an AdbError if adb's server failed, else a PhoneLostError.

    `state` is the one that adb lists the phone in now; a state named in adb's message `output` takes precedence.
    """
    if is_server_failure(output):
        return server_start_error(output)
    named = state_in_messages(output)
    if named is not None and named != ABSENT:
        state = named
    remark = f" ({error_line(output)})" if error_line(output) else ""
    if state == ABSENT:
        return PhoneLostError(
            f"phone {serial}: disconnected while {doing}{remark}; plug it in again and repeat the command"
        )
    if state == ONLINE:
        return PhoneLostError(
            f"phone {serial}: the connection was lost while {doing}{remark}, and is back: the phone or adb's server "
            "restarted, or the cable was pulled; repeat the command"
        )
    why = problem(state)
    return PhoneLostError(f"phone {serial}: lost while {doing}: {why.reason}; {why.cure}; repeat the command")
