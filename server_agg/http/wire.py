"""Bytes on the wire: counted where they pass, at the connection, and told apart into headers and bodies per request.

A request's bytes are what its connection received and sent from the end of the request before it. Under TLS these are
the bytes inside it. A connection that breaks off counts as far as it went.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server_agg.security.connections import PunctualProtocol
from server_agg.storage.ledger import WireBytes
from server_agg.storage.tables import TrafficKind


@dataclass
class ConnectionBytes:
    """Bytes that a connection has received and sent so far."""

    received: int = 0
    sent: int = 0


@dataclass
class RequestWire:
    """What a handler says of its request, for the ledger; `kind` None: not a phone's business, not counted."""

    kind: TrafficKind | None = None
    phone: str = ""
    round: int | None = None


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
        self.counted = ConnectionBytes()
        self.app_state = {**self.app_state, "connection": self.counted}
        super().connection_made(_CountingTransport(transport, self.counted))  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        """Count, and go on."""
        self.counted.received += len(data)
        super().data_received(data)


class WireCounter:
    """ASGI middleware: when a request is over, `on_request` gets its RequestWire and bytes."""

    def __init__(self, app: ASGIApp, on_request: Callable[[RequestWire, WireBytes], None]):
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
        sent_before, body = connection.sent, 0

        async def counting(message: Message) -> None:
            nonlocal body
            await send(message)
            if message["type"] == "http.response.body" and scope["method"] != "HEAD":
                body += len(message.get("body", b""))

        try:
            await self._app(scope, receive, counting)
        finally:
            headers = header_bytes(scope)
            received, connection.received = connection.received, 0
            self._on_request(
                wire,
                WireBytes(
                    up_headers=headers,
                    up_body=max(0, received - headers),
                    down_headers=max(0, connection.sent - sent_before - body),
                    down_body=body,
                ),
            )


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
