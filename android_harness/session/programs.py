"""phonograd-phone at work on a phone: started, listened to, and ended when asked."""

import contextlib
import json
import re
import shlex
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from phonograd.android_harness.adb.client import Adb
from phonograd.android_harness.adb.process import PhoneProcess
from phonograd.android_harness.errors import KeeperEndedError, PhoneLostError, PhoneRunError, PhoneSilentError
from phonograd.android_harness.session.settings import PROGRAM, TRANSIENT
from phonograd.device_runtime.base.errors import PhonogradError, StoppedError

Event = dict[str, Any]

# What phonograd-phone's --cores may be; a mask has a core in it. Which cores that is, only the program says.
CORES = re.compile(r"big|little|all|(0x)?(?=0*[1-9a-fA-F])[0-9a-fA-F]{1,256}")

# Exit codes that mean the same on the phone and here: device_runtime/native/src/phone/README.md.
SHARED_CODES = frozenset({3, 4, 5, 6, 10, 11, 12, 17, 26})
SIGNALLED = 128  # a shell's exit code of a process that a signal ended, plus the signal's number
# How long a stop or a silence may go unnoticed.
LISTEN_SECONDS = 0.25
# The status without a keeper's folder; and what a keeper that ends a program says before that may come a little later.
NOT_BEGUN, LAST_WORDS_SECONDS = 1, 2.0


class Program:
    """phonograd-phone with some arguments, in the work folder. From one thread."""

    def __init__(self, adb: Adb, serial: str, folder: str, arguments: Sequence[str]):
        self._adb, self._serial = adb, serial
        self._command = arguments[0]
        self._pid: int | None = None
        line = shlex.join([f"{folder}/{PROGRAM}", *arguments])
        # It goes into the background so that its process can be named; a shell waits for it and tells how it ended.
        # Where the keeper has ended already, nothing is begun.
        script = (
            f"umask 077; cd {shlex.quote(folder)} && [ -d {TRANSIENT} ] && {{\n{line} & pid=$!\n"
            'echo "{\\"event\\":\\"process\\",\\"pid\\":$pid}"\nwait $pid\n}'
        )
        self._process: PhoneProcess = adb.start(serial, script)

    def events(
        self, stop: threading.Event, silence_seconds: float, check_keeper: Callable[[float], None]
    ) -> Iterator[Event]:
        """What it reports, until it ends well.

        check_keeper: looks for so many seconds whether the phone's keeper has ended, and raises KeeperEndedError; the
        program is ended then, as nothing on the phone would end it later. Raises PhoneRunError if it ends otherwise,
        PhoneLostError if the phone goes away or says nothing for `silence_seconds`, StoppedError once `stop` is set and
        it has ended.
        """
        heard = time.monotonic()
        while True:
            if stop.is_set():
                self._end()
                raise StoppedError(f"phone {self._serial}: {PROGRAM} {self._command}: stopped", signal.SIGINT)
            try:
                check_keeper(0.0)
            except KeeperEndedError:
                with contextlib.suppress(PhonogradError):
                    self._end()
                raise
            try:
                line = self._process.line(LISTEN_SECONDS)
            except PhoneSilentError as error:
                if time.monotonic() - heard < silence_seconds:
                    continue
                raise PhoneSilentError(
                    f"phone {self._serial}: said nothing for {silence_seconds:.0f} s while {PROGRAM} {self._command} "
                    "ran; look whether it still works, or allow more (--heartbeat-timeout)"
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
        if status in (NOT_BEGUN, SIGNALLED + signal.SIGTERM):
            check_keeper(LAST_WORDS_SECONDS)
        self._check(status)

    def close(self) -> None:
        """Leave no process behind on this machine."""
        self._process.kill()

    def _end(self) -> None:
        """End it on the phone; if that fails, the phone's keeper does it when the session ends."""
        if self._pid is not None:
            self._adb.shell(self._serial, f"kill -TERM {self._pid}")

    def _check(self, status: int) -> None:
        if status == 0:
            return
        said = (self._process.err.strip().splitlines() or ["no word of why"])[-1].removeprefix(f"{PROGRAM}: ")
        what = f"phone {self._serial}: {PROGRAM} {self._command}"
        if status in SHARED_CODES:
            raise PhoneRunError(f"{what}: {said}", status)
        if status == SIGNALLED + signal.SIGKILL:
            raise PhoneRunError(
                f"{what}: was killed by Android (signal 9), most likely for its memory; close other apps, or take a "
                "phone with more RAM"
            )
        if status == SIGNALLED + signal.SIGTERM:
            raise PhoneRunError(
                f"{what}: was ended on the phone (signal 15) by somebody; run again",
                PhoneLostError.exit_code,
            )
        if status in (126, 127):
            raise PhoneRunError(f"{what}: Android cannot execute it: {said}; is it an arm64 phone?")
        if status > SIGNALLED:
            raise PhoneRunError(f"{what}: ended by signal {status - SIGNALLED}: a bug of phonograd; please report it")
        raise PhoneRunError(f"{what}: exit code {status}: {said}")


def _event(line: str) -> Event | None:
    """A line as an event; None for anything else that a phone may print between them."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None
