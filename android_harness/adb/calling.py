"""One call of the adb command that ends in time and leaves no process behind.

adb gets no terminal's Ctrl-C (a session of its own): it is ours to decide what a phone is doing then. Only the client
is ever ended, never adb's server, which other programs use too.
"""

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from phonograd.android_harness.errors import AdbError

# What a client that was ended may take to close its pipes; a server it was just starting holds them a little longer.
DRAIN_SECONDS = 1.0
_ERROR = re.compile("(?:adb: error: |adb: |error: )(?:failed to copy '.*' to '.*': )?(.+)")
_NOISE = ("* daemon ", "adb server version (", "* starting ")


@dataclass(frozen=True)
class Called:
    """What came of a call: its exit code, None if it was ended after its timeout, and what it printed until then."""

    code: int | None
    out: str
    err: str

    @property
    def said(self) -> str:
        """All that adb printed, errors last: some versions print them on stdout."""
        return f"{self.out}\n{self.err}"


def popen(command: Sequence[str | Path], stdin: int) -> subprocess.Popen[bytes]:
    """Start adb with pipes for its output. Raises AdbError if the system does not."""
    try:
        return subprocess.Popen(
            command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
    except OSError as error:
        raise AdbError(f"{command[0]}: does not start: {error.strerror}; is it an adb for this machine?") from error


def call(command: Sequence[str | Path], timeout: float) -> Called:
    """Run adb to its end, or end it after `timeout` seconds or on any exception. Raises AdbError if it can't start."""
    process = popen(command, subprocess.DEVNULL)
    try:
        out, err = process.communicate(timeout=timeout)
        code: int | None = process.returncode
    except subprocess.TimeoutExpired:
        out, err = _end(process)
        code = None
    except BaseException:
        _end(process)
        raise
    return Called(code, decoded(out), decoded(err))


def _end(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """Kill the client; what it printed."""
    process.kill()
    try:
        return process.communicate(timeout=DRAIN_SECONDS)
    except subprocess.TimeoutExpired as error:
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        process.wait()
        return error.stdout or b"", error.stderr or b""


def decoded(data: bytes) -> str:
    """Text of a phone, whatever its bytes, with plain line ends: phones before Android 7 send CR LF."""
    return data.decode("utf-8", errors="replace").replace("\r\n", "\n")


def without_noise(text: str) -> str:
    """Without what adb says of its own server as it starts or replaces it, and without blank lines."""
    return "\n".join(line for line in text.splitlines() if line.strip() and not line.startswith(_NOISE))


def last_line(text: str) -> str:
    """The last line that is none of adb's remarks; "" if there is none."""
    return (without_noise(text).splitlines() or [""])[-1].strip()


def complaint(text: str) -> str:
    """adb's last error, as `adb: closed`: a push that fails ends with a line on its speed; else the last line."""
    errors = [match[1] for match in map(_ERROR.match, text.splitlines()) if match is not None]
    return f"adb: {errors[-1].strip()}" if errors else last_line(text)


def complains(text: str) -> bool:
    """Whether adb tells of an error."""
    return any(map(_ERROR.match, text.splitlines()))
