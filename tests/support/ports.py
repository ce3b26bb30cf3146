"""A port that is known before a server listens on it."""

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """A loopback port that refuses connections and that the system gives to no other process.

    It is bound here but not listened on. A server that is given this port can still listen on it, any number of times:
    Linux allows it when both sockets set SO_REUSEADDR.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])
