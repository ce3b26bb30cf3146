"""Atomic file writes (temporary name, fsync, rename, fsync of the folder), locks, reads by position, hashes of files.

Windows does some of it in another way.
"""

import contextlib
import errno
import hashlib
import importlib
import os
import re
import secrets
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from phonograd.device_runtime.base.errors import StorageError, UnsupportedError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

WINDOWS = fcntl is None
HASH_CHUNK_BYTES = 1 << 20
# A large file that is synced at the end is written back to disk in runs of this many bytes before.
WRITEBACK_BYTES = 8 << 20
# Windows locks bytes, and others then cannot read them: this one is after a model's end. Its C library takes 31 bits.
WINDOWS_LOCKED_BYTE = (1 << 31) - 2


def sha256_of_file(path: Path) -> str:
    """Hex SHA-256 of a file's bytes, read in chunks. Raises OSError as `open_to_read` does."""
    return str(hashed_file(path).hexdigest())


def hashed_file(path: Path) -> Any:
    """The SHA-256 object of a file's bytes, to be updated with more. Raises OSError as `open_to_read` does."""
    digest = hashlib.sha256()
    with regular_file(path) as file:
        while chunk := file.read(HASH_CHUNK_BYTES):
            digest.update(chunk)
    return digest


def begin_writeback(descriptor: int, start: int, stop: int) -> None:
    """Let the system start writing bytes [start, stop) of a file to disk, so that a later fsync takes less time.

    Linux does this on POSIX_FADV_DONTNEED; pages that it is still writing stay in memory.
    """
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, start, stop - start, os.POSIX_FADV_DONTNEED)


def reserve(descriptor: int, nbytes: int) -> None:
    """Give an empty file this many bytes, and their space on the disk. Raises OSError if the disk has not enough.

    macOS has no call for the space: there a disk that is too full fails at a later write.
    """
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, nbytes)
    else:
        os.ftruncate(descriptor, nbytes)


def sync_folder(folder: Path) -> None:
    """Make renames inside `folder` durable. Windows opens no folders; there, the file system's journal has to do."""
    if WINDOWS:
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def require_posix(what: str) -> None:
    """Raise UnsupportedError on Windows, for `what` needs files that can be renamed while they are open, and folders
    that can be synced.
    """
    if WINDOWS:
        raise UnsupportedError(f"{what}: Linux or macOS expected, found Windows; use one of them, such as Linux in WSL")


def lock_file(descriptor: int, wait: bool = False) -> None:
    """Lock an open file until it is closed; a process that dies unlocks it.

    Raises OSError if another process has locked it; with `wait`, waits for that process (on Windows, 10 seconds).
    """
    if not WINDOWS:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        return
    windows = importlib.import_module("msvcrt")
    place = os.lseek(descriptor, 0, os.SEEK_CUR)
    os.lseek(descriptor, WINDOWS_LOCKED_BYTE, os.SEEK_SET)
    windows.locking(descriptor, windows.LK_LOCK if wait else windows.LK_NBLCK, 1)
    os.lseek(descriptor, place, os.SEEK_SET)


def open_to_read(path: Path) -> int:
    """The descriptor of a regular file, as for `read_at`. Raises OSError; for a pipe too, which is not waited for."""
    descriptor = os.open(path, _flags("O_RDONLY", "O_CLOEXEC", "O_BINARY", "O_NONBLOCK"))
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "a file expected, found a pipe or a device", str(path))


def _flags(*names: str) -> int:
    return sum(getattr(os, name, 0) for name in names)


def regular_file(path: Path) -> BinaryIO:
    """A regular file, open to be read. Raises OSError as `open_to_read` does."""
    return os.fdopen(open_to_read(path), "rb")


def read_bytes(path: Path) -> bytes:
    """Read all bytes of a regular file. Raises OSError as `open_to_read` does."""
    with regular_file(path) as file:
        return file.read()


def read_at(descriptor: int, out: memoryview, offset: int) -> int:
    """Read bytes from `offset` on into `out`; returns how many were read, 0 at the end. Thread-safe. Raises OSError."""
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [out], offset)
    with _moving:  # Windows
        os.lseek(descriptor, offset, os.SEEK_SET)
        read = os.read(descriptor, len(out))
    out[: len(read)] = read
    return len(read)


_moving = threading.Lock()


@contextlib.contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn an OSError raised inside into a StorageError that names `path`."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        cure = _CURES.get(error.errno or 0, "choose another place")
        raise StorageError(f"{path}: cannot write: {reason}; {cure}") from error


_CURES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "free space or choose another place"),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "allow more open files (ulimit -n)"),
    errno.ENOMEM: "free memory",
}


def make_parents(path: Path) -> None:
    """Make the folders that `path` is in, as far as they are missing. Raises StorageError."""
    folder = path.absolute().parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = f"no folder {folder}, and it can't be made: {error.strerror}"
        raise StorageError(f"{path}: cannot write: {reason}; choose another place") from error


def require_writable(path: Path) -> None:
    """Make the folders that `path` is in. Raises StorageError if no file can be written there.

    Call it before long work, which would be lost.
    """
    make_parents(path)
    folder = path.absolute().parent
    if path.is_dir() or not os.access(folder, os.W_OK):
        reason = "it is a folder" if path.is_dir() else f"no permission in {folder}"
        raise StorageError(f"{path}: cannot write: {reason}; choose another place")


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` for the block, or a program it starts, to write to. At the end it is synced and
    renamed to `path`; on any error it is removed. The folders that `path` is in are made. An empty file is there from
    the start, locked: what killed processes left of such files is not, and is removed.

    Raises StorageError if writing fails (disk full, permission, a file where a folder should be).
    """
    make_parents(path)
    with storage_errors(path):
        partial, lock = _new_partial(path)
    try:
        yield partial
        with storage_errors(path):
            with partial.open("r+b") as file:  # Windows syncs only what may be written
                os.fsync(file.fileno())
            partial.replace(path)
            sync_folder(path.parent)
        remove_partials(path)
    finally:
        # On a read-only mount, removing fails too: the first error is the one to report.
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        if lock is not None:
            os.close(lock)


def _new_partial(path: Path) -> tuple[Path, int | None]:
    """An empty partial file of `path`, and the descriptor that has it locked; None on Windows, where nobody can remove
    a file that is open.
    """
    remove_partials(path)
    while True:
        partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
        descriptor = os.open(partial, _flags("O_RDWR", "O_CREAT", "O_EXCL", "O_CLOEXEC"), 0o666)
        if WINDOWS:
            os.close(descriptor)
            return partial, None
        # Until it is locked, another process may take it for a dead one's: lock it and remove it.
        try:
            lock_file(descriptor)
            ours = partial.exists()
        except OSError as error:  # a file system without locks refuses them to that process too
            ours = not isinstance(error, BlockingIOError)
        if ours:
            return partial, descriptor
        os.close(descriptor)


def remove_partials(path: Path) -> None:
    """Remove what processes that were killed left of writing `path`; what a living one writes stays."""
    ours = re.compile(re.escape(f".{path.name}.") + r"[0-9a-f]{8}\.partial")
    for partial in [file for file in path.absolute().parent.iterdir() if ours.fullmatch(file.name)]:
        with contextlib.suppress(OSError):
            _remove_unlocked(partial)


def _remove_unlocked(partial: Path) -> None:
    """Raises OSError if a living process has it."""
    if WINDOWS:
        partial.unlink()
        return
    descriptor = os.open(partial, _flags("O_RDWR", "O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK"))
    try:
        lock_file(descriptor)
        partial.unlink()
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Like `atomic_path`, but yields a binary file open for writing."""
    with atomic_path(path) as partial, storage_errors(path), partial.open("r+b") as file:
        yield file


def write_bytes(path: Path, data: bytes) -> None:
    """Write a small file atomically. Raises StorageError."""
    with atomic_file(path) as file:
        file.write(data)
