"""Bytes that TCP carried for each request, by the kernel's counters: TLS and its handshake, without TCP's own headers.

A request has the bytes that no earlier request of its connection has and that were

- received before the last of its answer was sent,
- sent before the next request began, or the connection ended.

So a connection's first request has the TLS handshake.
"""

import asyncio
import socket
import struct
import sys
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

# tcp_info of Linux 4.19 and later: tcpi_state, _bytes_received, _notsent_bytes, _bytes_sent and _bytes_retrans.
_FIELDS = struct.Struct("=B127xQ8xI52xQQ")
_CLOSED, _CLOSE_WAIT = 7, 8  # of tcpi_state
_KNOWN = sys.platform == "linux"


class CountedSocket(socket.socket):
    """A connection that answers `getsockopt` for TCP_INFO also once it is closed: what it was then.

    asyncio closes a socket before the protocol above TLS hears of it. sent: bytes that the socket took; on_sent hears
    when it takes more.
    """

    _last = b""
    sent = 0
    on_sent: Callable[[], None] | None = None

    def send(self, data: Any, *flags: Any) -> int:
        """Send, and count."""
        return self._count_sent(super().send(data, *flags))

    def sendmsg(self, buffers: Any, *options: Any) -> int:
        """Send, and count; not on Windows."""
        return self._count_sent(super().sendmsg(buffers, *options))

    def _count_sent(self, nbytes: int) -> int:
        self.sent += nbytes
        if self.on_sent is not None:
            self.on_sent()
        return nbytes

    def getpeername(self) -> Any:
        """The address of the other end; one of IPv4 as such, also where IPv6 listens for both."""
        host, *rest = super().getpeername()
        return (host.removeprefix("::ffff:") if "." in host else host, *rest)

    def close(self) -> None:
        """Keep the counters, then close."""
        if _KNOWN and self.fileno() >= 0:
            self._last = self.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _FIELDS.size)
        super().close()

    def getsockopt(self, *asked: Any) -> Any:
        """Return the option, or the last TCP_INFO once the socket is closed."""
        return super().getsockopt(*asked) if self.fileno() >= 0 else self._last


# By descriptor: asyncio shows a protocol no socket, but its number.
_OPEN: WeakValueDictionary[int, CountedSocket] = WeakValueDictionary()


def count_socket(accepted: socket.socket) -> CountedSocket:
    """The accepted connection as a CountedSocket; `accepted` can't be used afterwards."""
    family, kind, protocol = accepted.family, accepted.type, accepted.proto
    counted = CountedSocket(family, kind, protocol, fileno=accepted.detach())
    _OPEN[counted.fileno()] = counted
    return counted


def counted_socket(transport: asyncio.BaseTransport) -> CountedSocket | None:
    """The socket below a transport, if it is a CountedSocket."""
    sock = transport.get_extra_info("socket")
    return None if sock is None else _OPEN.get(sock.fileno())


class TcpCounter:
    """Gives the requests of one connection, in turn, the bytes that its socket carried.

    sock: anything with the `getsockopt` of a CountedSocket. known: whether the kernel counts.
    """

    def __init__(self, sock: Any):
        self._sock = sock
        self._received = self._received_before = self._sent_before = 0
        self._running = self._answered = self._closed = False
        self._book: Callable[[int, int], None] | None = None
        self.known = sock is not None and _KNOWN and len(self._info()) == _FIELDS.size

    def begin(self, book: Callable[[int, int], None]) -> None:
        """A request begins; `book` gets its bytes, received and sent, when they are known."""
        if self.known:
            self._settle()
            self._book, self._running, self._answered = book, True, False

    def answer(self) -> None:
        """The next of the request's answer is about to be sent: what comes after the last of it is of another one."""
        if self.known:
            self._received, self._answered = self._read()[0], True

    def end(self) -> None:
        """The request is over."""
        if self.known:
            self._running = False
            if self._closed or not self._answered:
                self._received = self._read()[0]
            if self._closed:
                self._settle()

    def close(self) -> None:
        """The connection is closed."""
        self._closed = True
        if self.known and not self._running:
            self._received = self._read()[0]
            self._settle()

    def _settle(self) -> None:
        if self._book is None:
            return
        # Bytes that waited in a socket are never sent once the peer has reset it.
        book, self._book, sent = self._book, None, max(self._read()[1], self._sent_before)
        book(self._received - self._received_before, sent - self._sent_before)
        self._received_before, self._sent_before = self._received, sent

    def _read(self) -> tuple[int, int]:
        """Bytes received and sent; each once, however often TCP sent it. What waits in a socket that was not reset will
        be sent."""
        state, received, waiting, sent, again = _FIELDS.unpack(self._info())
        # The peer's last segment counts as a byte.
        return received - (state == _CLOSE_WAIT), sent - again + (0 if state == _CLOSED else waiting)

    def _info(self) -> bytes:
        info: bytes = self._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _FIELDS.size)
        return info
