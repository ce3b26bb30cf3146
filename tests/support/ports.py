"""A port for who must know it before anybody listens there."""

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """A port of loopback where nobody listens, and that the system gives to nobody else meanwhile.

    It stays bound here, without listening: who asks for any port gets another, connections are refused, and a server
    that is told this number may listen there (Linux allows that where both set SO_REUSEADDR), again and again.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])
