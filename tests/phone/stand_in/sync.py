"""adbd's file service, `sync:` (AOSP: packages/modules/adb/SYNC.TXT and daemon/file_sync_service.cpp).

What comes half is deleted, directories are made as needed, errors are the words of a real adbd.
"""

import os
import stat
import struct
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

from .link import Link
from .privileges import SHELL_UID
from .streams import Stream, StreamClosedError

DATA_MAX = 1 << 16
_REQUEST = struct.Struct("<4sI")
_STAT_V1 = struct.Struct("<4s3I")
_STAT_V2 = struct.Struct("<4sIQQ4IQ3q")
_SEND_V2 = struct.Struct("<4sII")
_PATH_MAX = 1024


class _RefusedError(Exception):
    """What the host is told with FAIL."""

    @classmethod
    def of(cls, what: str, error: OSError) -> "_RefusedError":
        return cls(f"{what}: {error.strerror}")


class SyncService:
    """Serves a host's file requests on one stream, one after the other."""

    def __init__(self, link: Link):
        self._link = link

    async def serve(self, stream: Stream) -> None:
        """Serve until QUIT, a failure, or the stream's end."""
        try:
            while await self._request(stream):
                pass
        except _RefusedError as refusal:
            text = str(refusal).encode()
            with suppress(StreamClosedError):
                await stream.send(_REQUEST.pack(b"FAIL", len(text)) + text)
                await self._drain(stream)
        except StreamClosedError:
            return
        with suppress(StreamClosedError):
            await stream.close()

    async def _request(self, stream: Stream) -> bool:
        name, length = _REQUEST.unpack(await stream.receive_exactly(_REQUEST.size))
        if length > _PATH_MAX:
            raise _RefusedError("path too long")
        argument = os.fsdecode(await stream.receive_exactly(length))
        path = Path(argument)
        if name == b"STAT":
            await stream.send(_stat_v1(path))
        elif name in {b"STA2", b"LST2"}:
            await stream.send(_stat_v2(name, path, follow=name == b"STA2"))
        elif name in {b"LIST", b"LIS2"}:
            await self._list(stream, path, version2=name == b"LIS2")
        elif name == b"SEND":
            text, _, mode = argument.rpartition(",")
            if not text or not mode.isdigit():
                raise _RefusedError(f"missing , in ID_SEND_V1: {argument}")
            await self._take(stream, Path(text), int(mode))
        elif name == b"SND2":
            _name, mode_word, _flags = _SEND_V2.unpack(await stream.receive_exactly(_SEND_V2.size))
            await self._take(stream, path, mode_word)
        elif name == b"RECV":
            await self._give(stream, path)
        elif name == b"RCV2":
            await stream.receive_exactly(8)
            await self._give(stream, path)
        elif name == b"QUIT":
            return False
        else:
            raise _RefusedError(f"unknown command {name!r}")
        return True

    async def _list(self, stream: Stream, folder: Path, version2: bool) -> None:
        names: list[str] = []
        with suppress(OSError):
            names = [".", "..", *os.listdir(folder)]
        for name in names:
            encoded = os.fsencode(name)
            entry = (
                _stat_v2(b"DNT2", folder / name, follow=False) if version2 else b"DENT" + _stat_v1(folder / name)[4:]
            )
            await stream.send(entry + struct.pack("<I", len(encoded)) + encoded)
        size = (_STAT_V2 if version2 else _STAT_V1).size
        await stream.send(b"DONE" + bytes(size))

    async def _give(self, stream: Stream, path: Path) -> None:
        try:
            file = path.open("rb", buffering=0)
        except OSError as error:
            raise _RefusedError.of("open failed", error) from None
        with file:
            while data := _read(file.fileno()):
                await stream.send(_REQUEST.pack(b"DATA", len(data)) + data)
                self._link.counters.pulled += len(data)
        await stream.send(_REQUEST.pack(b"DONE", 0))

    async def _take(self, stream: Stream, path: Path, mode: int) -> None:
        if stat.S_ISREG(_mode(path)) or stat.S_ISLNK(_mode(path)):  # a device or a folder stays
            with suppress(OSError):
                path.unlink()
        try:
            await _take_file(path, mode, self._blocks(stream))
        except BaseException:
            if stat.S_ISREG(_mode(path)):
                with suppress(OSError):
                    path.unlink()
            raise
        await stream.send(_REQUEST.pack(b"OKAY", 0))

    async def _blocks(self, stream: Stream) -> AsyncIterator[bytes | int]:
        """The file's blocks, and last its time of modification."""
        while True:
            name, length = _REQUEST.unpack(await stream.receive_exactly(_REQUEST.size))
            if name == b"DONE":
                yield length
                return
            if name != b"DATA":
                raise _RefusedError("invalid data message")
            if length > DATA_MAX:
                raise _RefusedError("oversize data message")
            block = await stream.receive_exactly(length)
            await self._link.count_pushed(len(block))
            yield block

    async def _drain(self, stream: Stream) -> None:
        """Hosts go on sending what they began before they look at an answer: take it, until they are done."""
        while True:
            name, length = _REQUEST.unpack(await stream.receive_exactly(_REQUEST.size))
            if name != b"DATA" or length > DATA_MAX:
                return
            await stream.receive_exactly(length)


async def _take_file(path: Path, mode: int, blocks: AsyncIterator[bytes | int]) -> None:
    fd = _create(path)
    try:
        os.fchmod(fd, _spread(mode))
        async for block in blocks:
            if isinstance(block, int):
                os.utime(fd, (block, block))
                return
            await _write(fd, block)
    finally:
        os.close(fd)


async def _write(fd: int, block: bytes) -> None:
    while block:
        try:
            block = block[os.write(fd, block) :]
        except OSError as error:
            raise _RefusedError.of("write failed", error) from None


def _create(path: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        try:
            return os.open(path, flags, 0o600)
        except FileNotFoundError:
            _make_folders(path.parent)
            return os.open(path, flags, 0o600)
    except OSError as error:
        raise _RefusedError.of("couldn't create file", error) from None


def _make_folders(folder: Path) -> None:
    try:
        for each in reversed([folder, *folder.parents]):
            if not each.exists():
                each.mkdir()
                each.chmod(0o775)
    except OSError as error:
        raise _RefusedError.of("secure_mkdirs failed", error) from None


def _spread(mode: int) -> int:
    """adbd gives group and others what the user has."""
    mode &= 0o777
    mode |= (mode >> 3) & 0o070
    return mode | ((mode >> 3) & 0o007)


def _mode(path: Path) -> int:
    try:
        return path.lstat().st_mode
    except OSError:
        return 0


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, DATA_MAX)
    except OSError as error:
        raise _RefusedError.of("read failed", error) from None


def _stat_v1(path: Path) -> bytes:
    try:
        found = path.lstat()
    except OSError:
        return _STAT_V1.pack(b"STAT", 0, 0, 0)
    return _STAT_V1.pack(b"STAT", found.st_mode, found.st_size & 0xFFFFFFFF, int(found.st_mtime) & 0xFFFFFFFF)


def _stat_v2(name: bytes, path: Path, follow: bool) -> bytes:
    try:
        found = path.stat() if follow else path.lstat()
    except OSError as error:
        return _STAT_V2.pack(name, error.errno or 0, *([0] * 10))
    times = (int(found.st_atime), int(found.st_mtime), int(found.st_ctime))
    owner = (SHELL_UID, SHELL_UID)
    return _STAT_V2.pack(
        name, 0, found.st_dev, found.st_ino, found.st_mode, found.st_nlink, *owner, found.st_size, *times
    )
