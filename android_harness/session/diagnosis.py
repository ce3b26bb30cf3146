"""What happened to a lost phone: it is gone, it rebooted, or only the connection broke."""

import time

from phonograd.android_harness.adb.client import Adb
from phonograd.android_harness.adb.states import ONLINE
from phonograd.android_harness.errors import AdbError, PhoneLostError, PhoneTimeoutError, WatchdogEndedError
from phonograd.device_runtime.base.errors import PhonogradError

BOOT_ID = "cat /proc/sys/kernel/random/boot_id 2>/dev/null || getprop ro.boottime.init"
POLL_SECONDS = 0.5


def diagnose_loss(
    adb: Adb, serial: str, boot: str | None, doing: str, wait: float, loss: PhoneLostError | AdbError
) -> PhoneLostError | AdbError:
    """The error to report: wait up to `wait` seconds for the phone to come back, then ask it whether it rebooted.

    While adb's server is being restarted adb has none for a while; that is the error only if it still has none at the
    end.
    """
    deadline = time.monotonic() + wait
    while (state := _state(adb, serial)) != ONLINE and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    if isinstance(state, AdbError):
        return state
    if state != ONLINE:
        return PhoneLostError(
            f"phone {serial}: disconnected while {doing} (cable pulled, switched off, or out of reach; adb's state: "
            f"{state}); reconnect it and run again; programs on it end by themselves"
        )
    try:
        now = adb.shell(serial, BOOT_ID, timeout=wait).out.strip()
    except PhonogradError:
        now = ""
    if now and boot and now != boot:
        return PhoneLostError(
            f"phone {serial}: rebooted while {doing}; its work is lost, and its settings stay changed until the next "
            "run or phonograd devices --restore: run again"
        )
    if not now or boot is None or isinstance(loss, PhoneTimeoutError | WatchdogEndedError):
        return loss
    return PhoneLostError(
        f"phone {serial}: the connection was lost while {doing}, and is back (a loose cable, or adb's server "
        "restarted); run again"
    )


def _state(adb: Adb, serial: str) -> str | AdbError:
    try:
        return adb.state(serial)
    except AdbError as error:
        return error
