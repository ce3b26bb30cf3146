"""One call of the adb command, which ends within its timeout and leaves no process behind.

adb runs in its own session, so that the terminal's Ctrl-C does not reach it: phonograd decides what happens on the
phone then. Only the client is ever killed, never adb's server, which other programs use too.
"""

import re
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from phonograd.android_harness.errors import AdbError

# How long a killed client may take to close its pipes; a server that it was just starting holds them a little longer.
DRAIN_SECONDS = 1.0
LOOK_SECONDS = 0.5  # between looks at the output of a client that still runs
# A session of its own; on Windows, which has none, a group of processes of its own.
OWN_GROUP: int = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)
_ERROR = re.compile("(?:adb: error: |adb: |error: )(?:failed to copy '.*' to '.*': )?(.+)")
_SERVER_NOTICES = ("* daemon ", "adb server version (", "* starting ")


@dataclass(frozen=True)
class CallResult:
    """The exit code of a call (None: killed after its timeout) and its output."""

    code: int | None
    out: str
    err: str

    @property
    def output(self) -> str:
        """Both outputs, stderr last; some versions print errors on stdout."""
        return f"{self.out}\n{self.err}"


def start_adb(command: Sequence[str | Path], stdin: int) -> subprocess.Popen[bytes]:
    """Start adb with pipes for its output. Raises AdbError if it does not start."""
    try:
        return subprocess.Popen(
            command,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            creationflags=OWN_GROUP,
        )
    except OSError as error:
        raise AdbError(f"{command[0]}: does not start: {error.strerror}; is it an adb for this machine?") from error


def run_adb(
    command: Sequence[str | Path], timeout: float, complete: Callable[[str], bool] = lambda _: False
) -> CallResult:
    """Run adb to its end; kill it after `timeout` seconds or on any exception. Raises AdbError if it does not start.

    complete: whether stdout is all that is waited for. Then the client is killed where its pipes stay open: something
    that a script left in the background holds them.
    """
    process = start_adb(command, subprocess.DEVNULL)
    end = time.monotonic() + timeout
    while True:
        try:
            out, err = process.communicate(timeout=max(0.0, min(LOOK_SECONDS, end - time.monotonic())))
            return CallResult(process.returncode, decode_output(out), decode_output(err))
        except subprocess.TimeoutExpired as waiting:
            if time.monotonic() < end and not complete(decode_output(waiting.stdout or b"")):
                continue
            out, err = _end(process)
            return CallResult(None, decode_output(out), decode_output(err))
        except BaseException:
            _end(process)
            raise


def _end(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    process.kill()
    try:
        return process.communicate(timeout=DRAIN_SECONDS)
    except subprocess.TimeoutExpired as error:
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        process.wait()
        return error.stdout or b"", error.stderr or b""


def decode_output(data: bytes) -> str:
    """A phone's output as text, with CR LF (sent before Android 7) as LF; invalid bytes are replaced."""
    return data.decode("utf-8", errors="replace").replace("\r\n", "\n")


def without_server_notices(text: str) -> str:
    """The text without adb's notices about starting or replacing its server, and without blank lines."""
    return "\n".join(line for line in text.splitlines() if line.strip() and not line.startswith(_SERVER_NOTICES))


def last_line(text: str) -> str:
    """The last line that is not a notice of adb's, or ""."""
    return (without_server_notices(text).splitlines() or [""])[-1].strip()


def error_line(text: str) -> str:
    """adb's last error, such as `adb: closed`, else the last line; a failed push prints a line about its speed last."""
    errors = [match[1] for match in map(_ERROR.match, text.splitlines()) if match is not None]
    return f"adb: {errors[-1].strip()}" if errors else last_line(text)


def has_error_line(text: str) -> bool:
    """Whether adb printed an error."""
    return any(map(_ERROR.match, text.splitlines()))
