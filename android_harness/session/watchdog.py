"""The watchdog: a script on the phone that holds the lock during a session and cleans up at its end."""

import getpass
import os
import re
import shlex
import socket
import threading
from importlib.resources import files

from phonograd.android_harness.adb.client import Adb
from phonograd.android_harness.adb.process import PhoneProcess
from phonograd.android_harness.errors import (
    PhoneBusyError,
    PhoneLostError,
    PhoneStorageError,
    PhoneTimeoutError,
    WatchdogEndedError,
)
from phonograd.android_harness.session.settings import PROGRAM, SessionSettings

# Long enough to take over a stale lock and end the programs of an aborted run.
START_SECONDS = 30.0
REMOVE_FILES, KEEP_FILES = "remove-files", "keep-files"


def phone_script(*names: str, **variables: str | int | float) -> str:
    """Scripts of on_phone/, one after the other, preceded by assignments of their variables."""
    texts = [(files(__package__) / "on_phone" / name).read_text("utf-8") for name in names]
    return "\n".join([*(f"{key}={shlex.quote(str(value))}" for key, value in variables.items()), *texts])


class Watchdog:
    """The lock on a phone, from construction to `end`.

    `boot` is the phone's boot id. `found_leftovers` says whether there were leftovers of an aborted run; they have been
    removed. Raises PhoneBusyError if another harness holds the lock, PhoneStorageError if the work folder cannot be
    made, PhoneLostError.
    """

    def __init__(self, adb: Adb, serial: str, settings: SessionSettings, nonce: str):
        self._serial, self._settings = serial, settings
        script = phone_script(
            "lock.sh",
            "watchdog.sh",
            folder=settings.folder,
            program=PROGRAM,
            nonce=nonce,
            holder=_holder_name(),
            timeout=settings.timeout_seconds,
        )
        self._process: PhoneProcess = adb.start(serial, script)
        self._ended = threading.Event()
        self._why_ended: str | None = None
        try:
            self.found_leftovers, self.boot = self._read_start()
        except BaseException:
            self._process.kill()
            raise
        self._heartbeat = threading.Thread(target=self._send_heartbeats, name=f"heartbeat of {serial}", daemon=True)
        self._heartbeat.start()

    def check(self, doing: str, seconds: float = 0.0) -> None:
        """Wait up to `seconds` to see whether the watchdog has ended; `doing` is for the message.

        Raises WatchdogEndedError if it has ended, PhoneLostError if its connection was lost.
        """
        if self._why_ended is None:
            try:
                self._why_ended = self._exit_reason(self._process.read_line(seconds))
            except PhoneTimeoutError:
                return
        raise WatchdogEndedError(
            f"phone {self._serial}: the watchdog that holds its lock ended while {doing}: {self._why_ended}; run again"
        )

    def end(self, keep: bool) -> None:
        """Restore the phone's settings, remove the pushed files unless `keep`, and release the lock.

        Raises WatchdogEndedError if the watchdog has ended already. Raises PhoneLostError if the phone is gone; the
        watchdog then cleans up without this machine, but keeps the files.
        """
        self._ended.set()
        self._heartbeat.join()
        try:
            self.check("nothing ran")
            self._process.write_line(KEEP_FILES if keep else REMOVE_FILES)
            while self._process.read_line(self._settings.exit_seconds) is not None:
                pass
            self._process.wait(self._settings.exit_seconds)
        finally:
            self._process.kill()

    def abandon(self) -> None:
        """Close this machine's end only: the phone is gone."""
        self._ended.set()
        self._process.kill()
        self._heartbeat.join()

    def _read_start(self) -> tuple[bool, str]:
        """Read the first line: whether there were leftovers, and the boot id."""
        words = (self._process.read_line(START_SECONDS) or "").split(maxsplit=2)
        match words:
            case ["ready", leftovers, boot]:
                return leftovers == "yes", boot
            case ["busy", *holder]:
                raise PhoneBusyError(
                    f"phone {self._serial}: {_describe_holder(' '.join(holder))} is using it; "
                    "wait until that ends, or stop it"
                )
            case ["refused", *_]:
                raise PhoneStorageError(
                    f"phone {self._serial}: {self._settings.folder}: cannot write there: storage full or read-only; "
                    "free some space on the phone (adb shell df /data)"
                )
        said = self._process.err.strip() or "no message"
        raise PhoneLostError(f"phone {self._serial}: its shell ended before work began ({said}); try again")

    def _exit_reason(self, line: str | None) -> str:
        """Why the watchdog ended, from the last line it printed (None: it printed none). Raises PhoneLostError."""
        if line == "ending timeout":
            return (
                f"it received nothing from this machine for {self._settings.timeout_seconds:g} s (`heartbeat_timeout`)"
            )
        if line is not None:
            return f"it printed {line!r}"
        status = self._process.wait(self._settings.exit_seconds)
        return f"it was killed on the phone (status {status}), perhaps by Android for lack of memory"

    def _send_heartbeats(self) -> None:
        seconds = min(self._settings.heartbeat_seconds, self._settings.timeout_seconds / 4)
        while not self._ended.wait(seconds):
            self._process.write_line("beat")


def _holder_name() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in some containers
        user = "?"
    return re.sub(r"[^\w.@-]", "?", f"{user}@{socket.gethostname()}") + f" process {os.getpid()}"


def _describe_holder(holder: str) -> str:
    words = holder.split(maxsplit=3)
    return f"another phonograd ({words[3]})" if len(words) == 4 else "another phonograd"
