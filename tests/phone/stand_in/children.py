"""The phone's processes: adbd is process 1 of its own process id namespace, so it reaps every orphan too."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from .privileges import ShellUser


def command_line(pid: int) -> list[str]:
    """A process's arguments, without the emulator's own two; empty for a zombie, or where there is no such process."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]
    except OSError:
        return []
    if words and words[0].endswith(b"qemu-aarch64-static"):
        words = words[2:]
    return [word.decode("utf-8", "replace") for word in words]


class Children:
    """Starts processes and learns how they end."""

    def __init__(self) -> None:
        self._ends: dict[int, asyncio.Future[int]] = {}
        self._shell = ShellUser()
        # Under nohup SIGHUP is ignored, and in a background job SIGINT, by every process started from there on.
        for number in (signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._reap)

    def start(
        self, arguments: Sequence[str], environment: Mapping[str, str], files: tuple[int, int, int]
    ) -> tuple[int, asyncio.Future[int]]:
        """Start one with these three files; its id, and its end as `wait` encodes it. OSError: it cannot be started."""
        stdin, stdout, stderr = files
        process = subprocess.Popen(
            arguments,
            env=environment,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd="/",
            preexec_fn=self._shell.become,  # noqa: PLW1509 - there is but one thread here
            start_new_session=True,
        )
        process.returncode = 0  # reaped below, not by Popen
        end = asyncio.get_running_loop().create_future()
        self._ends[process.pid] = end
        return process.pid, end

    def running(self) -> list[str]:
        """The command lines of all that runs on the phone."""
        pids = sorted(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
        mine = command_line(1)  # also a child's, until it executes what it was started for
        found = (command_line(pid) for pid in pids)
        return [" ".join(words) for words in found if words and words != mine]

    def kill(self, part: str) -> None:
        """End every process whose command line has `part`, as the low-memory killer does."""
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and entry.name != "1" and part in " ".join(command_line(int(entry.name))):
                with suppress(ProcessLookupError):
                    os.kill(int(entry.name), signal.SIGKILL)

    async def kill_all(self) -> None:
        """End every process of the phone but this one."""
        with suppress(ProcessLookupError):
            while True:
                os.kill(-1, signal.SIGKILL)
                await asyncio.sleep(0.01)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            end = self._ends.pop(pid, None)
            if end is not None and not end.done():
                end.set_result(status)
