"""`python -m tests.support.without_posix LINES`: command lines (JSON), in a process that lacks what Windows lacks.

Their exit codes are the last line of the output.

Modules, functions and signals are missing, open files can't be renamed or removed, and only writable files can
be synced. The standard library and dependencies were imported before: on Windows they have other code for all this.
"""

import errno
import fcntl
import importlib
import json
import os
import platform
import signal
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

BEFORE = (
    *("asyncio", "concurrent.futures.process", "ctypes", "getpass", "multiprocessing.popen_spawn_posix", "subprocess"),
    *(
        "alembic.command",
        "click.testing",
        "httpx",
        "jinja2",
        "numpy",
        "prometheus_client",
        "rich.progress",
        "rich.table",
    ),
    *("sqlalchemy", "uvicorn"),
)
MODULES = ("fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty")
FUNCTIONS = (
    *("chown", "fchmod", "fchown", "fork", "getegid", "geteuid", "getgid", "getloadavg", "getpgid", "getuid", "killpg"),
    *("mkfifo", "nice", "posix_fadvise", "posix_fallocate", "posix_spawn", "pread", "preadv", "pwrite", "pwritev"),
    *("register_at_fork", "sched_getaffinity", "sched_setaffinity", "sched_yield", "set_blocking", "setsid"),
    *("statvfs", "sysconf", "uname", "wait", "wait4", "O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "O_SYNC"),
)
SIGNALS = ("SIGALRM", "SIGCHLD", "SIGCONT", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGQUIT", "SIGSTOP", "SIGUSR1", "SIGUSR2")


def lock(descriptor: int, mode: int, nbytes: int) -> None:
    """msvcrt.locking, of the bytes from the file's position on."""
    assert mode in (1, 2)
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, nbytes, os.lseek(descriptor, 0, os.SEEK_CUR))


def only_if_closed(function: Callable[..., None]) -> Callable[..., None]:
    """The function, which refuses files that this process has open."""

    def check_and_call(path: Any, *others: Any, **named: Any) -> None:
        for descriptor in Path("/proc/self/fd").iterdir():
            if descriptor.exists() and os.path.exists(path) and os.path.samefile(descriptor, path):  # noqa: PTH110, PTH121
                raise PermissionError(errno.EACCES, "another process is using the file", str(path))
        function(path, *others, **named)

    return check_and_call


def sync(descriptor: int, sync: Callable[[int], None] = os.fsync) -> None:
    """os.fsync, of what may be written."""
    if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        raise OSError(errno.EBADF, "Bad file descriptor")
    sync(descriptor)


def hide() -> None:
    """Make this process look like one on Windows."""
    sys.modules.update(dict.fromkeys(MODULES))  # type: ignore[arg-type]
    windows: Any = types.ModuleType("msvcrt")
    windows.locking, windows.LK_LOCK, windows.LK_NBLCK = lock, 1, 2
    sys.modules["msvcrt"] = windows
    os.replace, os.unlink, os.fsync = only_if_closed(os.replace), only_if_closed(os.unlink), sync  # type: ignore[assignment]
    for module, names in ((os, FUNCTIONS), (signal, SIGNALS)):
        for name in names:
            delattr(module, name)
    platform.system, platform.machine = (lambda: "Windows"), (lambda: "AMD64")


if __name__ == "__main__":
    for name in BEFORE:
        importlib.import_module(name)
    assert "phonograd" not in sys.modules
    hide()
    from phonograd.cli import phonograd
    from phonograd.console import run

    print(json.dumps([run(phonograd, line) for line in json.loads(sys.argv[1])]))  # noqa: T201
