"""What adb's messages mean: which error of ours they are, and the next step."""

import re

from phonograd.android_harness.adb.calling import complaint
from phonograd.android_harness.adb.states import ABSENT, ATTACHED, said_state, trouble
from phonograd.android_harness.errors import AdbError, PhoneLostError, PhoneStorageError
from phonograd.device_runtime.base.errors import PhonogradError

# The server does not run, so the command never reached it: it is safe to try again.
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


def server_failed(said: str) -> bool:
    """Whether adb could not reach or start its server."""
    return _NO_SERVER.search(said) is not None


def server_error(said: str) -> AdbError:
    """adb can't reach or start its server."""
    versions = _OTHER_VERSION.search(said)
    if versions is not None:
        return AdbError(
            f"adb: {versions[0]}: two adb of different versions are at work, each ending the other's server; "
            "use one (which -a adb), or give ours a port of its own by ANDROID_ADB_SERVER_PORT"
        )
    found = complaint(said).removeprefix("adb: ")
    return AdbError(
        f"adb: its server does not start ({found}); another program may hold its port (5037, or "
        "ANDROID_ADB_SERVER_PORT): run adb kill-server, or choose another port"
    )


def server_silent(seconds: float) -> AdbError:
    """adb's server does not answer."""
    return AdbError(
        f"adb: did not answer within {seconds:.0f} s; its server hangs, or another program holds its port (5037, or "
        "ANDROID_ADB_SERVER_PORT): run adb kill-server, or choose another port"
    )


def storage_full(said: str) -> bool:
    """Whether a program on the phone could not write."""
    return _FULL.search(said) is not None


def storage_refused(said: str) -> bool:
    """Whether a phone refused to read or write a file."""
    return _PHONE_STORAGE.search(said) is not None


def storage_error(serial: str, doing: str, said: str) -> PhoneStorageError:
    """A phone's storage refused, as a line of `said` tells."""
    cure = "free space on it (Settings, Storage)" if storage_full(said) else "see whether adb's user can use that path"
    refusal = [line for line in said.splitlines() if storage_refused(line)]
    return PhoneStorageError(
        f"phone {serial}: its storage refused while {doing}: {complaint(refusal[-1])}; {cure} and repeat"
    )


def lost(serial: str, doing: str, said: str, state: str) -> PhonogradError:
    """A phone did not finish what it was doing; `state` is how adb lists it now, and adb's message goes before that.

    An AdbError if it was adb's server, else a PhoneLostError.
    """
    if server_failed(said):
        return server_error(said)
    told = said_state(said)
    if told is not None and told != ABSENT:
        state = told
    remark = f" ({complaint(said)})" if complaint(said) else ""
    if state == ABSENT:
        return PhoneLostError(
            f"phone {serial}: went away while {doing}{remark}; plug it in again and repeat the command"
        )
    if state == ATTACHED:
        return PhoneLostError(
            f"phone {serial}: the connection broke off while {doing}{remark}: it restarted, its cable was pulled, or "
            "adb's server was restarted; it is there again: repeat the command"
        )
    why = trouble(state)
    return PhoneLostError(f"phone {serial}: lost while {doing}: {why.reason}; {why.cure}; repeat the command")
