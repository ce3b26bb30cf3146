"""Bytes on the wire: counted where they pass, at the connection, and told apart into headers and bodies per request.

What a phone sends is counted as HTTP is read from its connection, so pipelined requests have their own bytes. Of an
answer counts what the socket took of it; what its buffer sent no further when a connection broke is counted all the
same. Under TLS these are the bytes inside it, and of an answer that was cut off at most what the socket took, TLS
included; `tcp` has those outside. A body that goes on after its answer, which nobody reads, counts to its own request.
What is no HTTP request, or was not read when its connection ended, counts to none; `tcp` has it.
"""

import asyncio
import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import h11
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from phonograd.server_agg.http.tcp import TcpCounter, counted_socket
from phonograd.server_agg.storage.ledger import WireBytes
from phonograd.server_agg.storage.tables import TrafficKind

# From connecting, or from the answer before it, to the end of a request's headers.
HEAD_SECONDS = 20.0
MAX_HEAD_BYTES = 1 << 16  # of a request; the guard has a limit of its own below it


@dataclass
class RequestWire:
    """What a handler says of its request, for the ledger; `kind` None: not a phone's business, not counted.

    booked: bytes of its body that the ledger has already, with the update they are of.
    How it ended is added here: `status` None if the client was gone before the answer began; `seconds` it took.
    """

    kind: TrafficKind | None = None
    phone: str = ""
    round: int | None = None
    booked: int = 0
    status: int | None = None
    seconds: float = 0.0


@dataclass
class RequestBytes:
    """Bytes of one request so far. begin: where its answer begins in what its connection sends; headers, body: of the
    answer, as handed to the transport.

    on_more: hears when bytes come that `WireCounter` has not booked.
    """

    begin: int = 0
    up_headers: int = 0
    up_body: int = 0
    headers: int = 0
    body: int = 0
    on_more: Callable[[], None] | None = None

    def wire(self, sent: int) -> WireBytes:
        """What went over the wire, if the connection has sent `sent` bytes. Header bytes go before body bytes."""
        down = min(max(0, sent - self.begin), self.headers + self.body)
        headers = min(down, self.headers)
        return WireBytes(self.up_headers, self.up_body, headers, down - headers)


class _CountedHttp(h11.Connection):
    """HTTP/1.1 of one connection: which bytes are of which request, the last one's are `request`'s."""

    def __init__(self) -> None:
        super().__init__(h11.SERVER, MAX_HEAD_BYTES)
        self.request = RequestBytes()
        self.handed = 0
        self._unread = 0  # received, and not yet known of which request

    def receive_data(self, data: bytes) -> None:
        """Count what was received."""
        self._unread += len(data)
        super().receive_data(data)

    def next_event(self) -> Any:
        """Count what was read."""
        try:
            event = super().next_event()
        except h11.RemoteProtocolError:  # all that follows is no HTTP
            self.request, self._unread = RequestBytes(begin=self.handed), 0
            raise
        if isinstance(event, h11.Data):  # with the end of what has come of the body
            return event
        unread = len(self.trailing_data[0])
        if isinstance(event, h11.Request):
            self.request = RequestBytes(begin=self.handed, up_headers=self._unread - unread)
        elif self._unread != unread:
            self.request.up_body += self._unread - unread
            if self.request.on_more is not None:
                self.request.on_more()
        self._unread = unread
        return event

    def send(self, event: Any) -> Any:
        """Count what goes to the transport."""
        output = super().send(event)
        if output:
            body = len(event.data) if isinstance(event, h11.Data) else 0
            self.request.body += body
            self.request.headers += len(output) - body
            self.handed += len(output)
        return output


class ConnectionBytes:
    """What a connection has sent so far, and who is waiting for it to send more.

    request: the one whose bytes come now. rest: the bytes of a body that were here when the connection broke, and that
    the application had not asked for yet; an ASGI message. tcp: counts what its socket carries.
    """

    def __init__(self, http: _CountedHttp, transport: asyncio.Transport, idle_seconds: float):
        self.rest: Message | None = None
        self._socket = counted_socket(transport)
        self.tcp = TcpCounter(self._socket)
        self._http = http
        self._transport = transport
        self._idle_seconds = idle_seconds
        self._before = 0 if self._socket is None else self._socket.sent  # TLS's handshake
        self._owed: list[RequestBytes] = []
        self._moved = asyncio.Event()
        self._lost = False
        if self._socket is not None:
            self._socket.on_sent = self._progress

    @property
    def request(self) -> RequestBytes:
        """The last request that was read."""
        return self._http.request

    @property
    def sent(self) -> int:
        """Bytes that the socket took; those handed to the transport where nothing counts them."""
        return self._http.handed if self._socket is None else min(self._socket.sent - self._before, self._http.handed)

    def owe(self, request: RequestBytes) -> None:
        """Tell the request when more of its answer is sent."""
        if not self._lost and self.sent < request.begin + request.headers + request.body:
            self._owed.append(request)

    async def drained(self) -> None:
        """Wait until all is sent, or the connection is lost. Nobody reads for the idle time: the connection ends."""
        until = self._http.handed
        while not self._lost and (sent := self.sent) < until:
            self._moved.clear()
            try:
                await asyncio.wait_for(self._moved.wait(), self._idle_seconds)
            except asyncio.TimeoutError:
                if self.sent == sent:
                    self._transport.abort()
                    return

    def close(self) -> None:
        """The connection is lost."""
        self._lost = True
        self._progress()
        self._owed.clear()
        if self._socket is not None:
            self._socket.on_sent = None
        self.tcp.close()

    def _progress(self) -> None:
        self._moved.set()
        for request in self._owed:
            if request.on_more is not None:
                request.on_more()
        self._owed = [owed for owed in self._owed if self.sent < owed.begin + owed.headers + owed.body]


class CountingProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 protocol; each request finds its connection's ConnectionBytes in its scope's state.

    A connection ends when nobody reads from it for `idle_seconds` although something is to be sent, or when its next
    request is not there within HEAD_SECONDS. Bytes that trickle in do not help: neither a head without end (Slowloris),
    nor the body of a request that is refused already, whose sender has this long to read why. A request that is being
    served takes the time it takes.
    """

    _deadline: asyncio.TimerHandle | None = None

    def __init__(self, idle_seconds: float, **settings: Any):
        super().__init__(**settings)
        self._idle_seconds = idle_seconds
        self._http = _CountedHttp()
        self.conn = self._http

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to count, and expect a request."""
        self.counted = ConnectionBytes(self._http, transport, self._idle_seconds)
        self.app_state = {**self.app_state, "connection": self.counted}
        super().connection_made(transport)
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Keep what came last: uvicorn forgets it, and the phone would have to send it again."""
        if self.cycle is not None and not self.cycle.response_complete and self.cycle.body:
            body, more = bytes(self.cycle.body), self.cycle.more_body
            self.counted.rest = {"type": "http.request", "body": body, "more_body": more}
        self.counted.close()
        self._stop_expecting()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Go on with what came, and see whether a request is among it."""
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_expecting()

    def on_response_complete(self) -> None:
        """Expect the next request."""
        self._expect_request()
        super().on_response_complete()

    def _expect_request(self) -> None:
        self._stop_expecting()
        self._deadline = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _stop_expecting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class WireCounter:
    """ASGI middleware: when a request is over, `on_request` gets its scope, RequestWire and bytes.

    Those of TCP it gets when they are known, by themselves, as WireBytes of no request.
    """

    def __init__(self, app: ASGIApp, on_request: Callable[[Scope, RequestWire, WireBytes], None]):
        self._app = app
        self._on_request = on_request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state, began = scope["state"], time.perf_counter()
        wire = state["wire"] = RequestWire()
        connection: ConnectionBytes = state["connection"]
        request, ended = connection.request, False
        connection.tcp.begin(
            lambda up, down: self._on_request(scope, wire, WireBytes(up_tcp=up, down_tcp=down, requests=0))
        )

        async def receiving() -> Message:
            message = await receive()
            if message["type"] == "http.disconnect" and connection.rest is not None:
                message, connection.rest = connection.rest, None
            return message

        async def counting(message: Message) -> None:
            nonlocal ended
            if message["type"] == "http.response.start":
                wire.status = message["status"]
            else:
                await connection.drained()
            if message["type"] == "http.response.start" or message.get("body"):
                connection.tcp.answer()
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                connection.tcp.end()  # now: the application may go on for a while, and the next request be here by then
                ended = True

        try:
            await self._app(scope, receiving, counting)
            await connection.drained()
        except Exception:
            wire.status = wire.status or 500  # answered further out, for a bug of ours
            raise
        finally:
            wire.seconds = time.perf_counter() - began
            if not ended:
                connection.tcp.end()
            self._book(scope, wire, connection, request)

    def _book(self, scope: Scope, wire: RequestWire, connection: ConnectionBytes, request: RequestBytes) -> None:
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
        connection.owe(request)
        self._on_request(scope, wire, dataclasses.replace(booked, up_tcp=of_tcp, down_tcp=of_tcp))


def wire_of(scope: Scope) -> RequestWire:
    """The request's RequestWire."""
    wire: RequestWire = scope["state"]["wire"]
    return wire
