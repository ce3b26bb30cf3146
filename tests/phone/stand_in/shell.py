"""adbd's shell service, `shell,v2,...,raw:COMMAND`, with its packets and without a terminal.

As in a real adbd (AOSP: daemon/shell_service.cpp) a child has one socket as stdin and stdout and one as stderr. When
the host goes away the child gets SIGHUP and its sockets are closed; what the child itself started is left alone.
"""

import asyncio
import os
import signal
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress

from .children import Children
from .streams import Stream, StreamClosedError

STDIN, STDOUT, STDERR, EXIT, CLOSE_STDIN = range(5)
_PACKET = struct.Struct("<BI")
_CHUNK = 1 << 16

Write = Callable[[int, bytes], Awaitable[None]]


class _End:
    """Our end of one of a child's sockets, never blocking."""

    def __init__(self, fd: int):
        os.set_blocking(fd, False)
        self._fd = fd

    async def read(self) -> bytes:
        """The next bytes; empty at the end."""
        while self._fd >= 0:
            with suppress(BlockingIOError):
                return os.read(self._fd, _CHUNK)
            await self._ready(asyncio.get_running_loop().add_reader, asyncio.get_running_loop().remove_reader)
        return b""

    async def write(self, data: bytes) -> None:
        """All of it, or as much as the child takes before it closes."""
        while data and self._fd >= 0:
            try:
                data = data[os.write(self._fd, data) :]
            except BlockingIOError:
                await self._ready(asyncio.get_running_loop().add_writer, asyncio.get_running_loop().remove_writer)
            except OSError:
                return

    async def _ready(self, add: Callable[..., None], remove: Callable[[int], bool]) -> None:
        ready = asyncio.get_running_loop().create_future()
        fd = self._fd
        add(fd, _settle, ready)
        try:
            await ready
        finally:
            remove(fd)

    def end_input(self) -> None:
        """The child's stdin ends; its stdout stays."""
        with suppress(OSError), socket.socket(fileno=os.dup(self._fd)) as end:
            end.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Hang up."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class ShellService:
    """Runs commands for hosts."""

    def __init__(self, children: Children, environment: dict[str, str]):
        self._children = children
        self._environment = environment

    async def serve(self, service: str, stream: Stream) -> None:
        """Run one command until it ends or its host goes away."""
        command = service.partition(":")[2]
        (end, errors), pid, finished = self._start(command)
        session = _Session(stream, end, errors)
        try:
            heard_out = await session.until_silent()
            if not heard_out:
                _hang_up(pid)
        except asyncio.CancelledError:
            _hang_up(pid)
            raise
        finally:
            end.close()
            errors.close()
        if heard_out:
            await session.report(os.waitstatus_to_exitcode(await finished))

    def _start(self, command: str) -> tuple[tuple[_End, _End], int, asyncio.Future[int]]:
        both, errors = socket.socketpair(), socket.socketpair()
        with both[1], errors[1]:
            files = (both[1].fileno(), both[1].fileno(), errors[1].fileno())
            pid, finished = self._children.start(["/system/bin/sh", "-c", command], self._environment, files)
        return (_End(both[0].detach()), _End(errors[0].detach())), pid, finished


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def _hang_up(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGHUP)


class _Session:
    """What goes between one child and its host."""

    def __init__(self, stream: Stream, end: _End, errors: _End):
        self._stream = stream
        self._end = end
        self._errors = errors

    async def until_silent(self) -> bool:
        """Pass everything on until the child closed its outputs: True. False: the host went away first."""
        sources = ((self._end, STDOUT), (self._errors, STDERR))
        outputs = [asyncio.create_task(self._forward(end, name)) for end, name in sources]
        feeding = asyncio.create_task(self._feed())
        gone = asyncio.create_task(self._stream.closed.wait())
        everything = asyncio.gather(*outputs)
        try:
            await asyncio.wait((everything, gone), return_when=asyncio.FIRST_COMPLETED)
            return everything.done() and everything.exception() is None
        finally:
            for task in (*outputs, feeding, gone):
                task.cancel()
            await asyncio.gather(everything, feeding, gone, return_exceptions=True)

    async def report(self, code: int) -> None:
        """Tell how the child ended: its code, or 128 and the signal."""
        with suppress(StreamClosedError):
            await self._stream.send(_PACKET.pack(EXIT, 1) + bytes([code if code >= 0 else 128 - code]))
            await self._stream.close()

    async def _forward(self, end: _End, name: int) -> None:
        while data := await end.read():
            await self._stream.send(_PACKET.pack(name, len(data)) + data)

    async def _feed(self) -> None:
        with suppress(StreamClosedError):
            while True:
                name, length = _PACKET.unpack(await self._stream.receive_exactly(_PACKET.size))
                data = await self._stream.receive_exactly(length)
                if name == STDIN:
                    await self._end.write(data)
                elif name == CLOSE_STDIN:
                    self._end.end_input()
