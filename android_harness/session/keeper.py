"""The keeper: a script on the phone that holds the lock for a session and undoes everything at its end."""

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
    KeeperEndedError,
    PhoneBusyError,
    PhoneLostError,
    PhoneSilentError,
    PhoneStorageError,
)
from phonograd.android_harness.session.settings import PROGRAM, SessionSettings

# Taking a lock over may mean ending what an aborted run left: some seconds.
START_SECONDS = 30.0
TIDY, KEEP = "tidy", "keep"


def phone_script(name: str, **variables: str | int | float) -> str:
    """A script of on_phone/, its variables before it."""
    text = (files(__package__) / "on_phone" / name).read_text("utf-8")
    return "\n".join([*(f"{key}={shlex.quote(str(value))}" for key, value in variables.items()), text])


class Keeper:
    """The lock on a phone, from construction to `end`.

    `boot` names the phone's running system, `found_leftovers` says whether an aborted run was cleaned up after. Raises
    PhoneBusyError if another harness holds the lock, PhoneStorageError if there is no work folder, PhoneLostError.
    """

    def __init__(self, adb: Adb, serial: str, settings: SessionSettings, nonce: str):
        self._serial, self._settings = serial, settings
        script = phone_script(
            "keeper.sh",
            folder=settings.folder,
            program=PROGRAM,
            nonce=nonce,
            owner=_owner(),
            silence=settings.silence,
        )
        self._process: PhoneProcess = adb.start(serial, script)
        self._ended = threading.Event()
        self._why_ended: str | None = None
        try:
            self.found_leftovers, self.boot = self._started()
        except BaseException:
            self._process.kill()
            raise
        self._heart = threading.Thread(target=self._beat, name=f"heartbeat of {serial}", daemon=True)
        self._heart.start()

    def check(self, doing: str, seconds: float = 0.0) -> None:
        """Look for at most `seconds` whether it has ended, while `doing` was done.

        Raises KeeperEndedError if it has, PhoneLostError if its connection broke off.
        """
        if self._why_ended is None:
            try:
                self._why_ended = self._last_words(self._process.line(seconds))
            except PhoneSilentError:
                return
        raise KeeperEndedError(
            f"phone {self._serial}: its keeper, which holds its lock, ended while {doing}: {self._why_ended}; run again"
        )

    def end(self, keep: bool) -> None:
        """Let go of the phone, its settings as they were, and the files that were pushed only with `keep`.

        Raises KeeperEndedError if it has ended before, PhoneLostError if the phone is gone: its keeper does all this by
        itself then, but keeps the files.
        """
        self._ended.set()
        self._heart.join()
        try:
            self.check("nothing ran")
            self._process.send(KEEP if keep else TIDY)
            while self._process.line(self._settings.ending) is not None:
                pass
            self._process.wait(self._settings.ending)
        finally:
            self._process.kill()

    def abandon(self) -> None:
        """End this machine's side only: the phone is gone."""
        self._ended.set()
        self._process.kill()
        self._heart.join()

    def _started(self) -> tuple[bool, str]:
        """What its first line says: whether there were leftovers, and the boot."""
        words = (self._process.line(START_SECONDS) or "").split(maxsplit=2)
        match words:
            case ["ready", leftovers, boot]:
                return leftovers == "yes", boot
            case ["busy", *holder]:
                raise PhoneBusyError(
                    f"phone {self._serial}: {_named(' '.join(holder))} is at work on it; wait for its end, or end it"
                    " there"
                )
            case ["refused", *_]:
                raise PhoneStorageError(
                    f"phone {self._serial}: {self._settings.folder}: cannot write there: storage full or read-only; "
                    "free some space on the phone (adb shell df /data)"
                )
        said = self._process.err.strip() or "no word of why"
        raise PhoneLostError(f"phone {self._serial}: its shell ended before work began ({said}); try again")

    def _last_words(self, line: str | None) -> str:
        """Why it ended, by the line it printed then, or None if it printed none. Raises PhoneLostError."""
        if line == "ending silence":
            return f"it heard nothing from this machine for {self._settings.silence:g} s (--heartbeat-timeout)"
        if line is not None:
            return f"it said {line!r}"
        status = self._process.wait(self._settings.ending)
        return f"it was killed there (status {status}), by Android for its memory or by somebody"

    def _beat(self) -> None:
        seconds = min(self._settings.heartbeat, self._settings.silence / 4)
        while not self._ended.wait(seconds):
            self._process.send("beat")


def _owner() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in some containers
        user = "?"
    return re.sub(r"[^\w.@-]", "?", f"{user}@{socket.gethostname()}") + f" process {os.getpid()}"


def _named(holder: str) -> str:
    """Who holds a lock: the owner's part of its line, PROCESS BOOT NONCE OWNER."""
    words = holder.split(maxsplit=3)
    return f"another phonograd ({words[3]})" if len(words) == 4 else "another phonograd"
