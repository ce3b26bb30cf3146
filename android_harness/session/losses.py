"""What became of a phone that was lost: gone, rebooted, or only its connection."""

import time

from phonograd.android_harness.adb.client import Adb
from phonograd.android_harness.errors import AdbError, KeeperEndedError, PhoneLostError, PhoneSilentError
from phonograd.device_runtime.base.errors import PhonogradError

BOOT_ID = "cat /proc/sys/kernel/random/boot_id 2>/dev/null || getprop ro.boottime.init"
LOOK_AGAIN_SECONDS = 0.5


def explained(
    adb: Adb, serial: str, boot: str | None, doing: str, wait: float, loss: PhoneLostError | AdbError
) -> PhoneLostError | AdbError:
    """The loss, with what became of the phone: waited for, then asked whether it rebooted, each `wait` seconds at most.

    An adb without a server for a while is being restarted; only if it has none at the end is that the error.
    """
    deadline = time.monotonic() + wait
    state = _state(adb, serial)
    while state != "device" and time.monotonic() < deadline:
        time.sleep(LOOK_AGAIN_SECONDS)
        state = _state(adb, serial)
    if isinstance(state, AdbError):
        return state
    if state == "device":
        return _still_there(adb, serial, boot, doing, wait, loss)
    return PhoneLostError(
        f"phone {serial}: went away while {doing} (cable pulled, switched off, or out of reach; adb calls it {state}); "
        "bring it back and run again: what ran on it ends by itself"
    )


def _still_there(
    adb: Adb, serial: str, boot: str | None, doing: str, wait: float, loss: PhoneLostError | AdbError
) -> PhoneLostError | AdbError:
    now = _boot(adb, serial, wait)
    if now is None or boot is None:
        return loss
    if now != boot:
        return PhoneLostError(f"phone {serial}: rebooted while {doing}; what it did is lost: run again")
    if isinstance(loss, PhoneSilentError | KeeperEndedError):
        return loss
    return PhoneLostError(
        f"phone {serial}: the connection broke off while {doing}, and is there again (a loose cable, or adb's server "
        "restarted); run again"
    )


def _state(adb: Adb, serial: str) -> str | AdbError:
    try:
        return adb.state(serial)
    except AdbError as error:
        return error


def _boot(adb: Adb, serial: str, seconds: float) -> str | None:
    try:
        return adb.shell(serial, BOOT_ID, timeout=seconds).out.strip() or None
    except PhonogradError:
        return None
