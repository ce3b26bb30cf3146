"""One ADB stream between a host's client and a service here: a two-way pipe with one unanswered WRTE each way."""

import asyncio
from collections.abc import Awaitable, Callable

from .messages import CLSE, OKAY, WRTE, Message

Send = Callable[[Message], Awaitable[None]]


class StreamClosedError(Exception):
    """The other side closed the stream, or the connection is gone."""


class Stream:
    """The service's end of a stream."""

    def __init__(self, local: int, remote: int, send: Send, max_payload: int):
        self.local = local
        self.remote = remote
        self.closed = asyncio.Event()
        self._send = send
        self._max_payload = max_payload
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._sending = asyncio.Lock()
        self._arrived: asyncio.Queue[bytes] = asyncio.Queue()
        self._buffer = bytearray()

    # What the connection calls

    def on_write(self, payload: bytes) -> None:
        """A WRTE came."""
        self._arrived.put_nowait(payload)

    def on_okay(self) -> None:
        """Our last WRTE was taken."""
        self._may_write.set()

    def on_close(self) -> None:
        """A CLSE came, or the connection is gone."""
        self.closed.set()
        self._may_write.set()
        self._arrived.put_nowait(b"")

    # What the service calls

    async def receive(self) -> bytes:
        """The next bytes; empty at the end. Only then the other side may send more."""
        if self._buffer:
            taken = bytes(self._buffer)
            self._buffer.clear()
            return taken
        payload = await self._arrived.get()
        if payload:
            await self._send(Message(OKAY, self.local, self.remote))
        else:
            self._arrived.put_nowait(b"")
        return payload

    async def receive_exactly(self, count: int) -> bytes:
        """Receive that many bytes. StreamClosedError: it ended before."""
        while len(self._buffer) < count:
            kept = self._buffer
            self._buffer = bytearray()
            payload = await self.receive()
            self._buffer = kept
            if not payload:
                raise StreamClosedError
            self._buffer += payload
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    async def send(self, data: bytes) -> None:
        """Bytes to the other side, whole. StreamClosedError: it is gone."""
        async with self._sending:
            for begin in range(0, len(data), self._max_payload):
                await self._may_write.wait()
                if self.closed.is_set():
                    raise StreamClosedError
                self._may_write.clear()
                await self._send(Message(WRTE, self.local, self.remote, data[begin : begin + self._max_payload]))

    async def close(self) -> None:
        """End it, after all that was sent is taken."""
        async with self._sending:
            await self._may_write.wait()
            if not self.closed.is_set():
                self.on_close()
                await self._send(Message(CLSE, self.local, self.remote))
