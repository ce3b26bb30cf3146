"""Bytes on the wire: counted at the connection and at the application's edge, headers and bodies of each request apart.

Counted to a request:

- its bytes, also if pipelined: what a phone sends is read a second time, for the boundaries
- the rest of its body after its answer, which is not read
- what the socket took of its answer, also if the connection broke before it was sent
- under TLS, the bytes inside it; for an answer that was cut off, at most what the socket took

Not counted here, but in `tcp`:

- TLS itself
- what is no HTTP request
- requests that were not served when their connection ended
"""

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import h11
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from phonograd.server_agg.http.tcp import TcpCounter, counted_socket
from phonograd.server_agg.shortages import RETRY_SECONDS
from phonograd.server_agg.storage.ledger import WireBytes
from phonograd.server_agg.storage.tables import TrafficKind

# From connecting, or from the answer before it, to the end of a request's headers.
HEAD_SECONDS = 20.0
MAX_HEAD_BYTES = 1 << 16  # of a request; the guard has a limit of its own below it
COME_AGAIN = (
    f"HTTP/1.1 503 Service Unavailable\r\nRetry-After: {RETRY_SECONDS}\r\n"
    "Content-Length: 0\r\nConnection: close\r\n\r\n"
)


@dataclass
class RequestWire:
    """A handler's facts about its request, for the ledger.

    kind: None: no traffic of phones, not counted
    booked: bytes of its body that the ledger has already, with their update
    asked: bytes of the answer that another program is to send
    status: added at the end; None if the client was gone before the answer began
    seconds: added at the end
    """

    kind: TrafficKind | None = None
    phone: str = ""
    round: int | None = None
    booked: int = 0
    asked: int = 0
    status: int | None = None
    seconds: float = 0.0


@dataclass
class RequestBytes:
    """Bytes of one request so far: received, and of its answer, which is [begin, end) of what its connection sends.

    unread: the part of its body that the application has not asked for; None once its answer is complete
    on_more: called when there may be bytes that `WireCounter` has not booked
    """

    up_headers: int
    up_body: int = 0
    unread: list[bytes] | None = field(default_factory=list)
    more_body: bool = True
    begin: int = 0
    end: int = 0
    down_body: int = 0
    on_more: Callable[[], None] | None = None

    def keep(self, body: bytes) -> None:
        """Keep what came of the body until the application asks for it."""
        if self.unread is not None:
            self.unread.append(body)

    def add(self, received: int) -> None:
        """Count received bytes of the body, as they came."""
        self.up_body += received
        if received and self.on_more is not None:
            self.on_more()

    def wire(self, sent: int) -> WireBytes:
        """Return what went over the wire once the connection has sent `sent` bytes: headers first, then the body."""
        down = max(0, min(sent, self.end) - self.begin)
        headers = min(down, self.end - self.begin - self.down_body)
        return WireBytes(self.up_headers, self.up_body, headers, down - headers)


class RequestReader:
    """Finds where the requests that a connection receives begin and end, one after the other.

    h11 reads heads and chunked bodies. A body of known length is counted and not copied: updates are large.
    """

    def __init__(self) -> None:
        self._request: RequestBytes | None = None
        self._served = False
        self._expect(b"")

    def receive(self, data: bytes) -> None:
        """Count what was received."""
        if self._request is not None and not self._request.more_body:
            self._early += data
        elif self._body_left is None:
            self._parse(data)
        else:
            self._count_body(data)

    def next_request(self) -> RequestBytes:
        """Return the next request, whose headers are here."""
        if self._served:
            self._request = None
            self._expect(bytes(self._early))
        self._served = True
        assert self._request is not None
        return self._request

    def _expect(self, early: bytes) -> None:
        self._http = h11.Connection(h11.SERVER, MAX_HEAD_BYTES)
        self._uncounted = 0  # received, and not yet known whether of the head or the body
        self._body_left: int | None = None  # None: the length is not known
        self._early = bytearray()  # of the requests after this one
        if early:
            self._parse(early)

    def _parse(self, data: bytes) -> None:
        self._uncounted += len(data)
        self._http.receive_data(data)
        with contextlib.suppress(h11.RemoteProtocolError):  # all that follows is no HTTP
            while (event := self._http.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
                if isinstance(event, h11.Request):
                    rest = self._http.trailing_data[0]
                    self._request = RequestBytes(self._uncounted - len(rest))
                    self._uncounted = len(rest)
                    headers = dict(event.headers)
                    if b"transfer-encoding" not in headers:
                        self._body_left = int(headers.get(b"content-length", 0))
                        self._count_body(rest)
                        return
                elif self._request is not None and isinstance(event, h11.Data):
                    self._request.keep(bytes(event.data))
                elif self._request is not None and isinstance(event, h11.EndOfMessage):
                    self._request.more_body = False
            if self._request is not None:
                rest = self._http.trailing_data[0]
                self._request.add(self._uncounted - len(rest))
                self._uncounted = len(rest)
                self._early += b"" if self._request.more_body else rest

    def _count_body(self, data: bytes) -> None:
        assert self._request is not None and self._body_left is not None
        body = data[: self._body_left]
        self._body_left -= len(body)
        self._request.more_body = self._body_left > 0
        self._request.keep(body)
        self._request.add(len(body))
        self._early += data[len(body) :]


class Connection:
    """The transport that uvicorn writes to, over the one of asyncio: what it received and sent so far.

    It ends when nobody reads from it for `idle_seconds` although something is to be sent, or when its next request is
    not there within HEAD_SECONDS. Bytes that trickle in do not help: neither a head without end (Slowloris), nor the
    body of a request that is refused already, whose sender has this long to read why. A request that is being served
    takes the time it takes.
    """

    def __init__(self, transport: asyncio.Transport, idle_seconds: float):
        self.reader = RequestReader()
        self.handed = 0  # to the transport
        self.lost = False
        self._transport = transport
        self._idle_seconds = idle_seconds
        self._socket = counted_socket(transport)
        self.tcp = TcpCounter(self._socket)
        self._before = 0 if self._socket is None else self._socket.sent  # TLS's handshake
        self._moved = asyncio.Event()
        self._request: RequestBytes | None = None  # the last that was served
        self._deadline: asyncio.TimerHandle | None = None  # of its next request
        if self._socket is not None:
            self._socket.on_sent = self._moved.set
        self.expect_request()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Write, and count."""
        self.handed += len(data)
        self._transport.write(data)

    @property
    def sent(self) -> int:
        """Bytes that the socket took; those handed to the transport where nothing counts them."""
        return self.handed if self._socket is None else min(self._socket.sent - self._before, self.handed)

    def next_request(self) -> RequestBytes:
        """The next request, whose answer begins."""
        self._stop_expecting()
        self._settle()
        self._request = request = self.reader.next_request()
        request.begin = request.end = self.handed
        return request

    def expect_request(self) -> None:
        """Give the next request its time to come."""
        self._stop_expecting()
        self._deadline = asyncio.get_running_loop().call_later(HEAD_SECONDS, self._transport.close)
        if self._request is None:
            _STRANGERS[self] = time.monotonic()

    async def drain(self) -> None:
        """Wait until all is sent, or the connection is lost. End it if the client reads nothing for the idle time."""
        until = self.handed
        while not self.lost and (sent := self.sent) < until:
            self._moved.clear()
            try:
                await asyncio.wait_for(self._moved.wait(), self._idle_seconds)
            except asyncio.TimeoutError:
                if self.sent == sent:
                    self._transport.abort()
                    return

    def lose(self) -> None:
        """The connection is lost."""
        self.lost = True
        self._stop_expecting()
        self._moved.set()
        self._settle()
        if self._socket is not None:
            self._socket.on_sent = None
        self.tcp.close()

    def _settle(self) -> None:
        request = self._request
        if request is not None and request.on_more is not None:
            if request.unread is not None:  # a bug: it was answered further out, or not to its end
                request.end = self.handed
            request.on_more()

    def _stop_expecting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
            _STRANGERS.pop(self, None)


# Connections whose first request is not there yet: since when.
_STRANGERS: dict[Connection, float] = {}


def turn_away(seconds: float) -> None:
    """Have all come again whose first request has been awaited for so long."""
    before = time.monotonic() - seconds
    for connection, since in list(_STRANGERS.items()):
        if since <= before:
            connection.write(COME_AGAIN.encode())
            connection.close()


class CountingProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 protocol; each request finds its Connection in its scope's state."""

    def __init__(self, idle_seconds: float, app_state: dict[str, Any], **settings: Any):
        self._idle_seconds = idle_seconds
        self._state = {**app_state}
        super().__init__(app_state=self._state, **settings)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to count, and expect a request."""
        self._counted = self._state["connection"] = Connection(transport, self._idle_seconds)
        super().connection_made(cast(asyncio.Transport, self._counted))

    def data_received(self, data: bytes) -> None:
        """Count what came, then read it."""
        self._counted.reader.receive(data)
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Count what came last."""
        self._counted.lose()
        super().connection_lost(exc)


class WireCounter:
    """ASGI middleware: when a request is over, `on_request` gets its scope, RequestWire and bytes.

    Those of TCP it gets when they are known, by themselves, as WireBytes of no request.
    """

    def __init__(self, app: ASGIApp, on_request: Callable[[Scope, RequestWire, WireBytes], None]):
        self._app = app
        self._on_request = on_request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        state, began = scope["state"], time.perf_counter()
        wire = state["wire"] = RequestWire()
        connection: Connection = state["connection"]
        request = connection.next_request()
        connection.tcp.begin(
            lambda up, down: self._on_request(scope, wire, WireBytes(up_tcp=up, down_tcp=down, requests=0))
        )

        async def receiving() -> Message:
            message = await receive()
            if message["type"] == "http.disconnect" and connection.lost and request.unread:
                # uvicorn forgets it, and the phone would have to send it again.
                message = {"type": "http.request", "body": b"".join(request.unread), "more_body": request.more_body}
            if request.unread is not None:
                request.unread.clear()  # the message has all that was here
            return message

        async def counting(message: Message) -> None:
            if message["type"] == "http.response.start":
                wire.status = message["status"]
            else:
                await connection.drain()
            if message["type"] == "http.response.start" or message.get("body"):
                connection.tcp.answer()
            before = connection.handed
            await send(message)
            # What was written of it: nothing for HEAD, or once the phone has gone.
            request.down_body += min(len(message.get("body", b"")), connection.handed - before)
            request.end = connection.handed
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                # Now: the application may go on for a while, and the next request be here by then.
                request.unread = None
                connection.tcp.end()
                connection.expect_request()

        try:
            await self._app(scope, receiving, counting)
            await connection.drain()
        except Exception:
            wire.status = wire.status or 500  # answered further out, for a bug of ours
            raise
        finally:
            wire.seconds = time.perf_counter() - began
            if request.unread is not None:
                connection.tcp.end()
            self._book(scope, wire, connection, request)

    def _book(self, scope: Scope, wire: RequestWire, connection: Connection, request: RequestBytes) -> None:
        """Book the bytes up to now, and those that come from now on when they come."""
        of_tcp = 0 if connection.tcp.known else None
        booked = request.wire(connection.sent)

        def more() -> None:
            nonlocal booked
            now = request.wire(connection.sent)
            new, booked = now - booked, now
            if new.up_body or new.down_headers or new.down_body:
                self._on_request(scope, wire, new)

        request.on_more = more
        self._on_request(scope, wire, dataclasses.replace(booked, up_tcp=of_tcp, down_tcp=of_tcp))


def wire_of(scope: Scope) -> RequestWire:
    """The request's RequestWire."""
    wire: RequestWire = scope["state"]["wire"]
    return wire
