"""phonograd-phone running on a phone: start it, read its events, stop it."""

import contextlib
import json
import shlex
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from phonograd.android_harness.adb.client import Adb
from phonograd.android_harness.adb.process import PhoneProcess
from phonograd.android_harness.errors import PhoneLostError, PhoneRunError, PhoneTimeoutError, WatchdogEndedError
from phonograd.android_harness.session.settings import PROGRAM, TRANSIENT_FOLDER
from phonograd.device_runtime.base.errors import PhonogradError, StoppedError

Event = dict[str, Any]

# Exit codes that mean the same on the phone and here: device_runtime/native/src/phone/README.md.
SHARED_EXIT_CODES = frozenset({3, 4, 5, 6, 7, 10, 11, 12, 17, 26, 29})
KILLED = 9  # SIGKILL on a phone; Windows has no such signal
SIGNAL_EXIT_BASE = 128  # a shell's exit code of a process that a signal ended, plus the signal's number
# How long it may take to notice a stop or a timeout.
LISTEN_SECONDS = 0.25
# The status if the watchdog's folder does not exist. A watchdog that ends a program says so, perhaps a little later.
NOT_STARTED, WATCHDOG_EXIT_SECONDS = 1, 2.0


class PhoneProgram:
    """phonograd-phone with arguments, in the work folder. For use by one thread."""

    def __init__(self, adb: Adb, serial: str, folder: str, arguments: Sequence[str]):
        self._adb, self._serial = adb, serial
        self._command = arguments[0]
        self._pid: int | None = None
        line = shlex.join([f"{folder}/{PROGRAM}", *arguments])
        # It runs in the background, so that the shell can print its process id, wait for it and return its status.
        # If the watchdog has ended already, nothing is started.
        script = (
            f"umask 077; cd {shlex.quote(folder)} && [ -d {TRANSIENT_FOLDER} ] && {{\n{line} & pid=$!\n"
            'echo "{\\"event\\":\\"process\\",\\"pid\\":$pid}"\nwait $pid\n}'
        )
        self._process: PhoneProcess = adb.start(serial, script)

    def events(
        self, stop: threading.Event, timeout_seconds: float, check_watchdog: Callable[[float], None]
    ) -> Iterator[Event]:
        """Yield its events until it ends successfully.

        check_watchdog: waits up to the given seconds and raises WatchdogEndedError if the watchdog has ended; the
        program is ended then, as nothing on the phone would end it later. Raises PhoneRunError if the program fails,
        PhoneLostError if the phone disconnects or prints nothing for `timeout_seconds`, StoppedError after `stop` was
        set and the program has ended.
        """
        heard = time.monotonic()
        while True:
            if stop.is_set():
                self._end()
                raise StoppedError(f"phone {self._serial}: {PROGRAM} {self._command}: stopped", signal.SIGINT)
            try:
                check_watchdog(0.0)
            except WatchdogEndedError:
                with contextlib.suppress(PhonogradError):
                    self._end()
                raise
            try:
                line = self._process.read_line(LISTEN_SECONDS)
            except PhoneTimeoutError as error:
                if time.monotonic() - heard < timeout_seconds:
                    continue
                raise PhoneTimeoutError(
                    f"phone {self._serial}: printed nothing for {timeout_seconds:.0f} s while {PROGRAM} "
                    f"{self._command} ran; check that it still works, or raise `heartbeat_timeout`"
                ) from error
            if line is None:
                break
            heard = time.monotonic()
            event = _event(line)
            if event is not None and event["event"] == "process":
                self._pid = int(event["pid"])
            elif event is not None:
                yield event
        status = self._process.wait(LISTEN_SECONDS)
        if status in (NOT_STARTED, SIGNAL_EXIT_BASE + signal.SIGTERM):
            check_watchdog(WATCHDOG_EXIT_SECONDS)
        self._check(status)

    def close(self) -> None:
        """End adb's process on this machine."""
        self._process.kill()

    def _end(self) -> None:
        """End it on the phone; if that fails, the watchdog does it when the session ends."""
        if self._pid is not None:
            self._adb.shell(self._serial, f"kill -TERM {self._pid}")

    def _check(self, status: int) -> None:
        if status == 0:
            return
        said = (self._process.err.strip().splitlines() or ["no message"])[-1].removeprefix(f"{PROGRAM}: ")
        what = f"phone {self._serial}: {PROGRAM} {self._command}"
        if status in SHARED_EXIT_CODES:
            raise PhoneRunError(f"{what}: {said}", status)
        if status == SIGNAL_EXIT_BASE + KILLED:
            raise PhoneRunError(
                f"{what}: was killed by Android (signal 9), most likely for lack of memory; close other apps, or use a "
                "phone with more RAM"
            )
        if status == SIGNAL_EXIT_BASE + signal.SIGTERM:
            raise PhoneRunError(
                f"{what}: received SIGTERM on the phone, not from phonograd; run again",
                PhoneLostError.exit_code,
            )
        if status in (126, 127):
            raise PhoneRunError(f"{what}: Android cannot execute it: {said}; is it an arm64 phone?")
        if status > SIGNAL_EXIT_BASE:
            raise PhoneRunError(
                f"{what}: ended by signal {status - SIGNAL_EXIT_BASE}: a bug of phonograd; please report it"
            )
        raise PhoneRunError(f"{what}: exit code {status}: {said}")


def _event(line: str) -> Event | None:
    """The event in a line; None for any other output of the phone."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None
