"""Bytes on the wire: counted where they pass, at the connection, and told apart into headers and bodies per request.

A request's bytes are what its connection received and sent from the end of the request before it; what arrives once a
phone has its whole answer is of its next request. Under TLS these are the bytes inside it; `tcp` has those outside. A
connection that breaks off counts as far as it went; a body that goes on after its answer, which nobody reads, counts to
its own request.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import h11
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from phonograd.server_agg.http.connections import PunctualProtocol
from phonograd.server_agg.http.tcp import TcpCounter
from phonograd.server_agg.storage.ledger import WireBytes
from phonograd.server_agg.storage.tables import TrafficKind


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
class ConnectionBytes:
    """Bytes that a connection has received and sent so far.

    on_unread: gets bytes of a body that arrive when its request is answered already. rest: the bytes of a body that
    were here when the connection broke, and that the application had not asked for yet; an ASGI message.
    tcp: counts what its socket carries.
    """

    received: int = 0
    sent: int = 0
    on_unread: Callable[[int], None] | None = None
    rest: Message | None = None
    tcp: TcpCounter = field(default_factory=lambda: TcpCounter(None))


class _CountingTransport:
    """A transport that counts what is written to it; all else is the transport's own."""

    def __init__(self, transport: asyncio.Transport, counted: ConnectionBytes):
        self._transport = transport
        self._counted = counted

    def write(self, data: bytes) -> None:
        self._counted.sent += len(data)
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class CountingProtocol(PunctualProtocol):
    """uvicorn's HTTP/1.1 protocol; each request finds its connection's ConnectionBytes in its scope's state."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to count."""
        self.counted = ConnectionBytes(tcp=TcpCounter(transport.get_extra_info("socket")))
        self.app_state = {**self.app_state, "connection": self.counted}
        super().connection_made(_CountingTransport(transport, self.counted))  # type: ignore[arg-type]

    def connection_lost(self, exc: Exception | None) -> None:
        """Keep what came last: uvicorn forgets it, and the phone would have to send it again."""
        if self.cycle is not None and not self.cycle.response_complete and self.cycle.body:
            body, more = bytes(self.cycle.body), self.cycle.more_body
            self.counted.rest = {"type": "http.request", "body": body, "more_body": more}
        self.counted.tcp.close()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count, and go on."""
        unread = self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY
        cycle = self.cycle
        self.counted.received += len(data)
        super().data_received(data)
        if unread and self.counted.on_unread is not None:
            of_next = len(self.conn.trailing_data[0])
            if self.cycle is not cycle:
                of_next += header_bytes(self.scope) + len(self.cycle.body)  # type: ignore[arg-type]
            self.counted.on_unread(len(data) - of_next)
            self.counted.received -= len(data) - of_next


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
        state = scope.setdefault("state", {})
        wire = state["wire"] = RequestWire()
        connection: ConnectionBytes = state.get("connection") or ConnectionBytes()
        counted, began = _Counted(scope, connection), time.perf_counter()
        connection.on_unread = lambda nbytes: self._on_request(scope, wire, WireBytes(up_body=nbytes, requests=0))
        connection.tcp.begin(
            lambda up, down: self._on_request(scope, wire, WireBytes(up_tcp=up, down_tcp=down, requests=0))
        )

        async def receiving() -> Message:
            message = await receive()
            if message["type"] == "http.disconnect" and connection.rest is not None:
                message, connection.rest = connection.rest, None
            return message

        async def counting(message: Message) -> None:
            if message["type"] == "http.response.start":
                wire.status = message["status"]
            if message["type"] == "http.response.start" or message.get("body"):
                counted.answer()
            await send(message)
            if message["type"] == "http.response.body":
                counted.body += 0 if scope["method"] == "HEAD" else len(message.get("body", b""))
                if not message.get("more_body", False):
                    counted.end()  # now: the application may go on for a while, and the next request be here by then

        try:
            await self._app(scope, receiving, counting)
        except Exception:
            wire.status = wire.status or 500  # answered further out, for a bug of ours
            raise
        finally:
            wire.seconds = time.perf_counter() - began
            self._on_request(scope, wire, counted.end())


class _Counted:
    """One request's bytes: what its connection carries from here to the first `end`."""

    def __init__(self, scope: Scope, connection: ConnectionBytes):
        self.body = 0  # of the answer
        self._headers = header_bytes(scope)
        self._connection = connection
        self._sent_before = connection.sent
        self._received: int | None = None
        self._bytes: WireBytes | None = None

    def answer(self) -> None:
        """The next of the answer is about to be sent. A phone that has the last of it may send its next request at
        once, before `end`.
        """
        self._received = self._connection.received
        self._connection.tcp.answer()

    def end(self) -> WireBytes:
        """The bytes up to the first call."""
        if self._bytes is None:
            if self._received is None:  # there was no answer
                self._received = self._connection.received
            self._connection.received -= self._received
            self._connection.tcp.end()
            of_tcp = 0 if self._connection.tcp.known else None
            self._bytes = WireBytes(
                up_headers=self._headers,
                up_body=max(0, self._received - self._headers),
                down_headers=max(0, self._connection.sent - self._sent_before - self.body),
                down_body=self.body,
                up_tcp=of_tcp,
                down_tcp=of_tcp,
            )
        return self._bytes


def wire_of(scope: Scope) -> RequestWire:
    """The request's RequestWire."""
    wire: RequestWire = scope["state"]["wire"]
    return wire


def header_bytes(scope: Scope) -> int:
    """Bytes of a request's line and headers as they stand on an HTTP/1.1 wire."""
    query = scope["query_string"]
    target = scope.get("raw_path", b"") + (b"?" + query if query else b"")
    line = len(scope["method"]) + 1 + len(target) + len(" HTTP/1.1\r\n")
    return line + sum(len(name) + len(value) + 4 for name, value in scope["headers"]) + 2
