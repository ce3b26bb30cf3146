"""Atomic file writes (temporary name, fsync, rename, fsync of the folder), and hashes of files."""

import contextlib
import hashlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from phonograd.device_runtime.base.errors import StorageError

HASH_CHUNK_BYTES = 1 << 20
# A large file that is synced at the end is written back to disk in runs of this many bytes before.
WRITEBACK_BYTES = 8 << 20


def sha256_of_file(path: Path) -> str:
    """Hex SHA-256 of a file's bytes, read in chunks. Raises OSError as `open` does."""
    return str(hashed_file(path).hexdigest())


def hashed_file(path: Path) -> Any:
    """The SHA-256 object of a file's bytes, which can be updated with more. Raises OSError as `open` does."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(HASH_CHUNK_BYTES):
            digest.update(chunk)
    return digest


def begin_writeback(descriptor: int, start: int, stop: int) -> None:
    """Let the system start writing bytes [start, stop) of a file to disk, so that a later fsync takes less time.

    Linux does this on POSIX_FADV_DONTNEED; pages that it is still writing stay in memory.
    """
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, start, stop - start, os.POSIX_FADV_DONTNEED)


def sync_folder(folder: Path) -> None:
    """Make renames inside `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn an OSError raised inside into a StorageError that names `path`."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError(f"{path}: cannot write: {reason}; free space or choose another place") from error


def require_writable(path: Path) -> None:
    """Raise StorageError if no file can be written at `path`. Call it before long work, which would be lost."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise StorageError(f"{path}: cannot write: no folder {folder}; make it or choose another place")
    if path.is_dir() or not os.access(folder, os.W_OK):
        reason = "it is a folder" if path.is_dir() else f"no permission in {folder}"
        raise StorageError(f"{path}: cannot write: {reason}; choose another place")


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` for the block, or a program it starts, to write to. At the end it is synced and
    renamed to `path`; on any error it is removed.

    Raises StorageError if writing fails (disk full, permission, no such folder).
    """
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        yield partial
        with storage_errors(path):
            with partial.open("rb") as file:
                os.fsync(file.fileno())
            partial.replace(path)
            sync_folder(path.parent)
    finally:
        # On a read-only mount, removing fails too: the first error is the one to report.
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Like `atomic_path`, but yields a binary file open for writing."""
    with atomic_path(path) as partial, storage_errors(path), partial.open("xb") as file:
        yield file


def write_bytes(path: Path, data: bytes) -> None:
    """Write a small file atomically. Raises StorageError."""
    with atomic_file(path) as file:
        file.write(data)
