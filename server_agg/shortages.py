"""A machine that has no more descriptors, memory or threads for the server: what is told of it, and what is kept free.

A new descriptor has the lowest free number, so all below it are in use. Connections take no number above
ACCEPTING of the limit, nor the files of single uploads and downloads one above SERVING: what is left is for the
ledger, the models and the log.
"""

import errno
import logging
import os
import time
from pathlib import Path
from typing import IO, TypeVar

from phonograd.device_runtime.base.errors import OutOfMemoryError
from phonograd.device_runtime.base.system import most_open_files
from phonograd.server_agg.log_format import event

log = logging.getLogger(__name__)

MOST_DESCRIPTORS = 65_536
ACCEPTING, ACCEPTING_AGAIN, SERVING = 0.9, 0.8, 0.95
RETRY_SECONDS = 2
QUIET_SECONDS = 60.0  # between two lines in the log

_OF_SYSTEM = {errno.EMFILE: "open files", errno.ENFILE: "open files", errno.ENOMEM: "memory", errno.ENOBUFS: "memory"}
_CURES = {
    "open files": "allow the server more (ulimit -n, LimitNOFILE=)",
    "memory": "give it more memory, or let it serve fewer at once",
    "threads": "allow it more (ulimit -u, TasksMax=)",
}
_said: dict[str, float] = {}

F = TypeVar("F", bound=IO[bytes])


def shortage_in(error: BaseException | None) -> str | None:
    """What the machine was short of when `error` or a cause of it was raised; None for any other error."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _OF_SYSTEM:
            return _OF_SYSTEM[error.errno]
        if os.strerror(errno.EMFILE) in str(error):
            return "open files"
        if "unable to open database file" in str(error) and beyond(ACCEPTING, in_use()):  # SQLite does not say why
            return "open files"
        if isinstance(error, MemoryError | OutOfMemoryError):
            return "memory"
        if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
            return "threads"
        error = error.__cause__
    return None


def noted_shortage(error: BaseException) -> str | None:
    """The same, and a line of it in the log."""
    if (what := shortage_in(error)) is not None:
        note(what)
    return what


def note(what: str) -> None:
    """Write down that the machine is short of `what`, at most once in QUIET_SECONDS."""
    if (now := time.monotonic()) >= _said.get(what, now):
        _said[what] = now + QUIET_SECONDS
        message = "no more %s for the server: some are told to come again in %d s; %s"
        log.warning(message, what, RETRY_SECONDS, _CURES[what], extra=event("short", what=what))


def beyond(share: float, descriptor: int) -> bool:
    """Whether this share of all descriptors was in use when `descriptor` was made."""
    return descriptor >= int(share * most_open_files())


def in_use() -> int:
    """How many descriptors this process has; 0 where the system does not tell."""
    try:
        return sum(1 for _ in Path("/dev/fd").iterdir())
    except OSError as error:
        return 0 if isinstance(error, FileNotFoundError) else most_open_files()


def within_reserve(file: F) -> F:
    """A file that one request needs. Raises OSError, with the file closed, rather than take what is kept free."""
    if beyond(SERVING, file.fileno()):
        file.close()
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    return file
