"""adbd's transport: one host at a time over TCP, its authorisation, and its streams."""

import asyncio
import os
import socket
import traceback
from collections.abc import Callable, Coroutine
from contextlib import suppress

from . import messages as wire
from .link import Link
from .messages import Message, ProtocolError
from .streams import Stream

TOKEN_BYTES = 20
# The work of a service on a stream, by the name with which a host opens it; None: there is no such service.
FindService = Callable[[str, Stream], Coroutine[None, None, None] | None]
HOST_LEAVES_SECONDS = 0.3  # how long a new host waits for one that is just going away


class Connection:
    """One host's connection, from its first byte to its last."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, adbd: "Adbd"):
        self._reader = reader
        self._writer = writer
        self._adbd = adbd
        self._max_payload = wire.MAX_PAYLOAD
        self._offered_key: bytes | None = None
        self._online = False
        self._streams: dict[int, Stream] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._next_id = 1

    async def serve(self) -> None:
        """Serve until the host goes away or breaks the protocol."""
        try:
            while True:
                message = await self._read()
                if message.command == wire.CNXN:
                    await self._connect(message)
                elif message.command == wire.AUTH:
                    await self._authenticate(message)
                elif not self._online:
                    continue
                elif message.command == wire.OPEN:
                    await self._open(message)
                else:
                    await self._to_stream(message)
        except (OSError, EOFError, ProtocolError):
            return
        finally:
            await self._end()

    async def authorise(self) -> bool:
        """Trust the key that the host offered, and let it in. False: it waits for nothing."""
        if self._offered_key is None or self._online:
            return False
        self._adbd.trusted.add(self._offered_key)
        await self._let_in()
        return True

    def pull(self) -> None:
        """The cable is pulled."""
        self._writer.transport.abort()

    async def _read(self) -> Message:
        header = await self._reader.readexactly(wire.HEADER.size)
        message, length = wire.decode_header(header)
        payload = await self._reader.readexactly(length) if length else b""
        await self._adbd.link.speaking.wait()
        return Message(message.command, message.arg0, message.arg1, payload)

    async def _send(self, message: Message) -> None:
        data = wire.encode(message)
        await self._adbd.link.speaking.wait()
        if self._writer.transport.is_closing():
            return
        self._writer.write(data)
        with suppress(OSError):
            await self._writer.drain()

    async def _connect(self, message: Message) -> None:
        self._close_streams()
        self._online = False
        self._max_payload = min(message.arg1, wire.MAX_PAYLOAD)
        await self._challenge()

    async def _challenge(self) -> None:
        await self._send(Message(wire.AUTH, wire.TOKEN, 0, os.urandom(TOKEN_BYTES)))

    async def _authenticate(self, message: Message) -> None:
        if message.arg0 == wire.SIGNATURE:
            await self._challenge()  # signatures are not checked here: the host goes on and offers its key
        elif message.arg0 == wire.RSAPUBLICKEY:
            self._offered_key = message.payload
            if self._offered_key in self._adbd.trusted or self._adbd.is_allowed():
                await self.authorise()

    async def _let_in(self) -> None:
        self._online = True
        await self._send(Message(wire.CNXN, wire.VERSION, wire.MAX_PAYLOAD, self._adbd.banner))

    async def _open(self, message: Message) -> None:
        stream = Stream(self._next_id, message.arg0, self._send, self._max_payload)
        self._next_id += 1
        service = message.payload.rstrip(b"\0").decode("utf-8", "surrogateescape")
        work = self._adbd.find_service(service, stream)
        if work is None:
            await self._send(Message(wire.CLSE, 0, message.arg0))
            return
        self._streams[stream.local] = stream
        await self._send(Message(wire.OKAY, stream.local, stream.remote))
        task = asyncio.create_task(self._run(stream, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, stream: Stream, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except Exception:  # a bug here; the host sees the stream end
            traceback.print_exc()
            await stream.close()
        finally:
            stream.on_close()
            self._streams.pop(stream.local, None)

    async def _to_stream(self, message: Message) -> None:
        stream = self._streams.get(message.arg1)
        if stream is None:
            if message.command == wire.WRTE:
                await self._send(Message(wire.CLSE, message.arg1, message.arg0))
        elif message.command == wire.WRTE:
            stream.on_write(message.payload)
        elif message.command == wire.OKAY:
            stream.on_okay()
        elif message.command == wire.CLSE:
            stream.on_close()

    def _close_streams(self) -> None:
        for stream in self._streams.values():
            stream.on_close()

    async def _end(self) -> None:
        self._writer.transport.abort()
        self._close_streams()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Adbd:
    """Listens for hosts on a port of this machine's loopback, and lets one in at a time, as over a cable."""

    def __init__(self, link: Link, banner: str, find_service: FindService, trusts_hosts: bool, port: int):
        self.link = link
        self.banner = banner.encode()
        self.find_service = find_service
        self.trusted: set[bytes] = set()  # keys of hosts
        self._trusts_hosts = trusts_hosts
        self._allow_next = False
        self._server: asyncio.Server | None = None
        self._connection: Connection | None = None
        self._serving: asyncio.Task[None] | None = None
        self.port = port

    async def plug(self) -> None:
        """Be reachable."""
        if self._server is None:
            listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", self.port))
            self.port = listener.getsockname()[1]
            self._server = await asyncio.start_server(self._accept, sock=listener, limit=4 * wire.MAX_PAYLOAD)

    async def unplug(self) -> None:
        """Be gone, in the middle of whatever is going on."""
        if self._server is not None:
            self._server.close()
            self._server = None
        await self.drop()

    async def drop(self) -> None:
        """End the connection there is; a host may come again."""
        if self._connection is not None:
            self._connection.pull()
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.gather(self._serving, return_exceptions=True)

    async def authorise(self) -> None:
        """Somebody taps Allow, now that the dialog is there; else as soon as it is."""
        if self._connection is None or not await self._connection.authorise():
            self._allow_next = True

    def is_allowed(self) -> bool:
        """Whether a host of an unknown key may come in."""
        allowed = self._trusts_hosts or self._allow_next
        self._allow_next = False
        return allowed

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.link.speaking.is_set():
            await self.drop()  # a silent phone does not even notice that its host went away
        if self._serving is not None:
            await asyncio.wait({self._serving}, timeout=HOST_LEAVES_SECONDS)
        if self._connection is not None:
            writer.transport.abort()
            return
        writer.transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = Connection(reader, writer, self)
        self._serving = asyncio.create_task(self._connection.serve())
        try:
            await asyncio.gather(self._serving, return_exceptions=True)
        finally:
            self._connection = self._serving = None
