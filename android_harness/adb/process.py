"""A script running on a phone, to read lines from and write lines to."""

import contextlib
import os
import queue
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from phonograd.android_harness.adb.command import DRAIN_SECONDS, decode_output, start_adb
from phonograd.android_harness.adb.failures import connection_lost_error
from phonograd.android_harness.adb.marked_script import MarkedScript
from phonograd.android_harness.errors import PhoneTimeoutError

# The longest line, and how much of the end of stderr is kept: no phone can fill this machine's memory.
LINE_BYTES = 1 << 20
STDERR_CHARACTERS = 1 << 16
PHONE_SIGNALS = 64  # the last one's number on Linux; this machine's own signals may be others


class PhoneProcess(contextlib.AbstractContextManager["PhoneProcess"]):
    """An adb client with a reader thread for stdout and stderr; every wait has a timeout.

    Close it by `kill` or as a context manager, also after its end. `command` is adb's command line without the script;
    `state` returns the state that adb lists the phone in. Raises AdbError if adb does not start.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        serial: str,
        script: MarkedScript,
        doing: str,
        state: Callable[[], str],
    ):
        self.serial = serial
        self._state = state
        self._script = script
        self._doing = doing
        self._status: int | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._err = ""
        self._writing = threading.Lock()
        self._process = start_adb([*command, script.text], subprocess.PIPE)
        assert self._process.stdin is not None and self._process.stdout is not None and self._process.stderr is not None
        self._stdin: IO[bytes] = self._process.stdin
        if hasattr(os, "set_blocking"):  # Windows has it from Python 3.12 on
            os.set_blocking(self._stdin.fileno(), False)
        self._readers = [
            threading.Thread(target=self._read_lines, args=(self._process.stdout,), daemon=True),
            threading.Thread(target=self._read_errors, args=(self._process.stderr,), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def err(self) -> str:
        """Stderr so far, or the end of it."""
        return self._err

    def read_line(self, timeout: float) -> str | None:
        """The next line, without its line break; None at the end or when the phone was lost (`wait` tells which).

        Raises PhoneTimeoutError if no line arrives within `timeout` seconds.
        """
        try:
            line = self._lines.get(timeout=max(timeout, 0))
        except queue.Empty:
            raise self._timeout_error(timeout) from None
        if line is None:
            self._lines.put(None)  # for the next call
        return line

    def write_line(self, line: str) -> None:
        """Write a line of less than 4 KiB to its stdin.

        Never blocks: the line is dropped if 64 KiB are unread. If the script has ended, `read_line` shows it.
        """
        with self._writing, contextlib.suppress(OSError, ValueError):
            os.write(self._stdin.fileno(), f"{line}\n".encode())

    def close(self) -> None:
        """Close its stdin."""
        with self._writing, contextlib.suppress(OSError):
            self._stdin.close()

    def wait(self, timeout: float) -> int:
        """Wait for the end; return the status, or 128 plus the signal. Unread lines remain for `read_line`.

        Raises PhoneLostError if the connection was lost, PhoneTimeoutError if it does not end within `timeout` seconds.
        """
        reader = self._readers[0]
        reader.join(max(timeout, 0))
        if self._status is None and reader.is_alive():
            raise self._timeout_error(timeout)
        self._readers[1].join(DRAIN_SECONDS)
        if self._status is None:
            self._status = self._signal_status()
        if self._status is None:
            raise connection_lost_error(self.serial, self._doing, self._err, self._state())
        return self._status

    def kill(self) -> None:
        """Kill adb's client if it still runs; the script's stdin ends. Never raises."""
        self.close()
        self._process.kill()
        self._process.wait()
        for reader in self._readers:
            reader.join(DRAIN_SECONDS)

    def _read_lines(self, pipe: IO[bytes]) -> None:
        """Queue the lines between the markers. Hold back empty lines until the next: the last is not the script's."""
        begun = held = False
        with pipe:
            while data := pipe.readline(LINE_BYTES):
                whole = decode_output(data)
                line = whole.removesuffix("\n")
                if not begun:
                    begun = line == self._script.begin
                    continue
                self._status = self._script.status(whole)
                if self._status is not None:
                    break
                if held:
                    self._lines.put("")
                held = not line
                if line:
                    self._lines.put(line)
        self._lines.put(None)

    def _signal_status(self) -> int | None:
        """128 plus the signal that ended its shell; a lost connection gives adb no such code."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(DRAIN_SECONDS)
            return code if 128 < code <= 128 + PHONE_SIGNALS else None
        return None

    def _read_errors(self, pipe: IO[bytes]) -> None:
        with pipe:
            while data := pipe.read1(STDERR_CHARACTERS):  # type: ignore[attr-defined]  # a BufferedReader
                self._err = (self._err + decode_output(data))[-STDERR_CHARACTERS:]

    def _timeout_error(self, timeout: float) -> PhoneTimeoutError:
        return PhoneTimeoutError(
            f"phone {self.serial}: printed nothing for {timeout:.0f} s while {self._doing}; check that it is still "
            "connected and repeat the command"
        )
