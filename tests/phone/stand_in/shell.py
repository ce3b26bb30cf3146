"""adbd's shell services: `shell,v2,...:COMMAND` with its packets, and plain `shell:` and `exec:`.

As in a real adbd (AOSP: daemon/shell_service.cpp): with the shell protocol and without a terminal a child has one
socket as stdin and stdout and one as stderr; all else has a pseudo-terminal. When the host goes away the child gets
SIGHUP and its sockets are closed; what the child itself started is left alone.
"""

import asyncio
import fcntl
import os
import pty
import signal
import socket
import struct
import termios
import tty
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from .children import Children
from .link import Link
from .streams import Stream, StreamClosedError

STDIN, STDOUT, STDERR, EXIT, CLOSE_STDIN, WINDOW_SIZE = range(6)
_PACKET = struct.Struct("<BI")
_CHUNK = 1 << 16

Write = Callable[[int, bytes], Awaitable[None]]


@dataclass(frozen=True)
class Request:
    """What a service's name asks for."""

    command: str
    protocol: bool
    terminal: bool
    terminal_raw: bool = False
    terminal_type: str = "dumb"

    @classmethod
    def parse(cls, service: str) -> "Request":
        """`shell[,v2][,raw|pty][,TERM=...]:COMMAND` or `exec:COMMAND`."""
        name, _, command = service.partition(":")
        kind, *options = name.split(",")
        protocol = "v2" in options
        raw = kind == "exec" or "raw" in options
        terminals = [option[5:] for option in options if option.startswith("TERM=")]
        # Without the protocol even a raw shell has a terminal, so that it is hung up when the host goes away.
        return cls(command, protocol, not (protocol and raw), raw and not protocol, (terminals or ["dumb"])[0])


class _End:
    """Our end of one of a child's sockets or terminals, never blocking."""

    def __init__(self, fd: int):
        os.set_blocking(fd, False)
        self._fd = fd

    async def read(self) -> bytes:
        """The next bytes; empty at the end."""
        while self._fd >= 0:
            with suppress(BlockingIOError):
                try:
                    return os.read(self._fd, _CHUNK)
                except OSError as error:
                    if isinstance(error, BlockingIOError):
                        raise
                    return b""  # EIO: nobody has the terminal open any more
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

    def resize(self, rows: int, columns: int, width: int, height: int) -> None:
        """A terminal's new size."""
        with suppress(OSError):
            fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, width, height))

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

    def __init__(self, children: Children, link: Link, environment: dict[str, str]):
        self._children = children
        self._link = link
        self._environment = environment

    async def serve(self, service: str, stream: Stream) -> None:
        """Run one command until it ends or its host goes away."""
        request = Request.parse(service)
        self._link.counters.shells += 1
        (end, errors), pid, finished = self._start(request)
        session = _Session(request, stream, self._link, end, errors)
        try:
            heard_out = await session.until_silent()
            if not heard_out:
                _hang_up(pid)
        except asyncio.CancelledError:
            _hang_up(pid)
            raise
        finally:
            end.close()
            if errors is not None:
                errors.close()
        if heard_out:
            await session.report(os.waitstatus_to_exitcode(await finished))

    def _start(self, request: Request) -> tuple[tuple[_End, _End | None], int, asyncio.Future[int]]:
        arguments = ["/system/bin/sh", "-c", request.command] if request.command else ["/system/bin/sh", "-"]
        environment = {**self._environment, "TERM": request.terminal_type}
        if request.terminal:
            ours, theirs = pty.openpty()
            if request.terminal_raw:
                tty.setraw(theirs)
            try:
                pid, finished = self._children.start(arguments, environment, (theirs,) * 3, _take_terminal)
            finally:
                os.close(theirs)
            return (_End(ours), None), pid, finished
        both, errors = socket.socketpair(), socket.socketpair()
        with both[1], errors[1]:
            files = (both[1].fileno(), both[1].fileno(), errors[1].fileno())
            pid, finished = self._children.start(arguments, environment, files, lambda: None)
        return (_End(both[0].detach()), _End(errors[0].detach())), pid, finished


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def _take_terminal() -> None:
    """In a new child that leads its session: its stdin is its terminal."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _hang_up(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGHUP)


class _Session:
    """What goes between one child and its host."""

    def __init__(self, request: Request, stream: Stream, link: Link, end: _End, errors: _End | None):
        self._request = request
        self._stream = stream
        self._link = link
        self._end = end
        self._errors = errors

    async def until_silent(self) -> bool:
        """Pass everything on until the child closed its outputs: True. False: the host went away first."""
        sources = [(self._end, STDOUT)] + ([(self._errors, STDERR)] if self._errors is not None else [])
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
            if self._request.protocol:
                await self._stream.send(_PACKET.pack(EXIT, 1) + bytes([code if code >= 0 else 128 - code]))
            await self._stream.close()

    async def _forward(self, end: _End, name: int) -> None:
        while data := await end.read():
            await self._link.shell_output(len(data))
            packet = _PACKET.pack(name, len(data)) + data if self._request.protocol else data
            await self._stream.send(packet)

    async def _feed(self) -> None:
        with suppress(StreamClosedError):
            while True:
                if not self._request.protocol:
                    data = await self._stream.receive()
                    if not data:
                        return
                    await self._end.write(data)
                    continue
                name, length = _PACKET.unpack(await self._stream.receive_exactly(_PACKET.size))
                await self._take(name, await self._stream.receive_exactly(length))

    async def _take(self, name: int, data: bytes) -> None:
        if name == STDIN:
            await self._end.write(data)
        elif name == CLOSE_STDIN and not self._request.terminal:
            self._end.end_input()  # a terminal cannot end its input alone: adbd leaves it open
        elif name == WINDOW_SIZE and self._request.terminal:
            size, _, pixels = data.rstrip(b"\0").decode().partition(",")
            rows, columns = map(int, size.split("x"))
            width, height = map(int, (pixels or "0x0").split("x"))
            self._end.resize(rows, columns, width, height)
