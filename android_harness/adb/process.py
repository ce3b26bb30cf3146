"""A script that runs on a phone while its lines are read and lines are sent to it."""

import contextlib
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

from phonograd.android_harness.adb.calling import DRAIN_SECONDS, decoded, popen
from phonograd.android_harness.adb.failures import lost
from phonograd.android_harness.adb.marked import Marked
from phonograd.android_harness.errors import PhoneSilentError

# A line is cut here, and stderr keeps this much of its end, so that no phone can fill this machine's memory.
LINE_BYTES = 1 << 20
STDERR_CHARACTERS = 1 << 16


class PhoneProcess:
    """One adb client, with a thread on each of its pipes; nothing here waits longer than it is told to.

    To be closed by `kill`, or as a context manager, also after its end. `command` is adb's without the script; `state`
    tells how adb lists the phone now. Raises AdbError if adb does not start.
    """

    def __init__(
        self, command: Sequence[str | Path], serial: str, marked: Marked, doing: str, state: Callable[[], str]
    ):
        self.serial = serial
        self._state = state
        self._marked = marked
        self._doing = doing
        self._status: int | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._err = ""
        self._writing = threading.Lock()
        self._process = popen([*command, marked.text], subprocess.PIPE)
        assert self._process.stdin is not None and self._process.stdout is not None and self._process.stderr is not None
        self._stdin: IO[bytes] = self._process.stdin
        os.set_blocking(self._stdin.fileno(), False)
        self._readers = [
            threading.Thread(target=self._read_lines, args=(self._process.stdout,), daemon=True),
            threading.Thread(target=self._read_errors, args=(self._process.stderr,), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> "PhoneProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def err(self) -> str:
        """Its stderr so far, or the end of it."""
        return self._err

    def line(self, timeout: float) -> str | None:
        """Its next line, without the line break; None at its end, or when it was lost: `wait` tells which.

        Raises PhoneSilentError if none comes within `timeout` seconds.
        """
        try:
            line = self._lines.get(timeout=max(timeout, 0))
        except queue.Empty:
            raise self._silent(timeout) from None
        if line is None:
            self._lines.put(None)  # it stays at its end
        return line

    def send(self, line: str) -> None:
        """Send a line of less than 4 KiB to its stdin.

        It never waits: with 64 KiB unread before it, the line is dropped. That it has ended shows in `line`.
        """
        with self._writing, contextlib.suppress(OSError, ValueError):
            os.write(self._stdin.fileno(), f"{line}\n".encode())

    def close(self) -> None:
        """Close its stdin."""
        with self._writing, contextlib.suppress(OSError):
            self._stdin.close()

    def wait(self, timeout: float) -> int:
        """Its status, after its end, or 128 and the signal that ended it; lines that nobody took stay for `line`.

        Raises PhoneLostError if it broke off, PhoneSilentError if it does not end within `timeout` seconds.
        """
        reader = self._readers[0]
        reader.join(max(timeout, 0))
        if self._status is None and reader.is_alive():
            raise self._silent(timeout)
        self._readers[1].join(DRAIN_SECONDS)
        if self._status is None:
            self._status = self._signalled()
        if self._status is None:
            raise lost(self.serial, self._doing, self._err, self._state())
        return self._status

    def kill(self) -> None:
        """End adb's client, if it has not ended; the script gets an end of file on its stdin. Never raises."""
        self.close()
        self._process.kill()
        self._process.wait()
        for reader in self._readers:
            reader.join(DRAIN_SECONDS)

    def _read_lines(self, pipe: IO[bytes]) -> None:
        """Lines between the marks into the queue. An empty line waits for the next: the last is not the script's."""
        begun = held = False
        with pipe:
            while data := pipe.readline(LINE_BYTES):
                whole = decoded(data)
                line = whole.removesuffix("\n")
                if not begun:
                    begun = line == self._marked.begin
                    continue
                self._status = self._marked.status(whole)
                if self._status is not None:
                    break
                if held:
                    self._lines.put("")
                held = not line
                if line:
                    self._lines.put(line)
        self._lines.put(None)

    def _signalled(self) -> int | None:
        """128 and the signal that ended its shell on the phone: no connection that breaks off gives adb such a code."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(DRAIN_SECONDS)
            return code if 128 < code < 128 + signal.NSIG else None
        return None

    def _read_errors(self, pipe: IO[bytes]) -> None:
        with pipe:
            while data := pipe.read1(STDERR_CHARACTERS):  # type: ignore[attr-defined]  # a BufferedReader
                self._err = (self._err + decoded(data))[-STDERR_CHARACTERS:]

    def _silent(self, timeout: float) -> PhoneSilentError:
        return PhoneSilentError(
            f"phone {self.serial}: said nothing for {timeout:.0f} s while {self._doing}; look whether it is still "
            "there and repeat the command"
        )
