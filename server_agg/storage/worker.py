"""What the processes of `serve --workers` have in common: a state folder, and locks in it.

A lock is a file that the system unlocks when a process dies.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from phonograd.device_runtime.base.files import lock_file, storage_errors


@dataclass(frozen=True)
class Worker:
    """One of the processes that serve a state folder.

    number: from 0; at most one process has it at a time. alone: whether none of the others has begun yet, so that this
    one does what the start of a server does. lock: the descriptor of the folder's lock, which all of them have.
    """

    number: int
    alone: bool
    lock: int


@contextlib.contextmanager
def locked(path: Path, wait: bool = True, together: bool = False) -> Iterator[bool]:
    """Whether this process has the lock while the block runs: without `wait`, another one may have it.

    together: with others that say so too. The same for threads. Raises StorageError.
    """
    with storage_errors(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    mine = False
    try:
        with storage_errors(path), contextlib.suppress(BlockingIOError):
            lock_file(descriptor, wait, together)
            mine = True
        yield mine
    finally:
        os.close(descriptor)
