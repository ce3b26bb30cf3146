"""A network between a phone and the server: it counts bytes, and can drop the connection."""

import contextlib
import selectors
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest


@dataclass
class Relay:
    """Relays connections to `target` on loopback. up, down: bytes passed to and from the server so far.

    cuts: for each connection in turn, the bytes from the phone after which it is dropped; None, or none left: never.
    down_cuts: the same of the bytes to the phone. heard: what phones sent, all of it.
    """

    target: int
    cuts: list[int | None] = field(default_factory=list)
    down_cuts: list[int | None] = field(default_factory=list)
    up: int = 0
    down: int = 0
    connections: int = 0
    heard: bytearray = field(default_factory=bytearray)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def serve(self, listener: socket.socket) -> None:
        while True:
            try:
                phone, _ = listener.accept()
            except OSError:
                return
            up, down = (cuts.pop(0) if cuts else None for cuts in (self.cuts, self.down_cuts))
            self.connections += 1
            threading.Thread(target=self._relay, args=(phone, up, down), daemon=True).start()

    def _count(self, up: int, down: int) -> None:
        with self._lock:
            self.up += up
            self.down += down

    def _relay(self, phone: socket.socket, up: int | None, down: int | None) -> None:
        try:
            server = socket.create_connection(("127.0.0.1", self.target))
        except OSError:  # it is down
            phone.close()
            return
        with phone, server, selectors.DefaultSelector() as ready:
            ready.register(phone, selectors.EVENT_READ)
            ready.register(server, selectors.EVENT_READ)
            left = {phone: up, server: down}
            while True:
                for key, _ in ready.select():
                    source, sink = (phone, server) if key.fileobj is phone else (server, phone)
                    try:
                        data = source.recv(1 << 16)
                    except OSError:
                        return
                    if not data:
                        return
                    cut = left[source]
                    if cut is not None:
                        data = data[:cut]
                        left[source] = cut = cut - len(data)
                    if source is phone:
                        self.heard += data
                    self._count(up=len(data) if source is phone else 0, down=len(data) if source is server else 0)
                    with contextlib.suppress(OSError):
                        sink.sendall(data)
                    if cut == 0:
                        return


@contextlib.contextmanager
def relay_to(port: int, cuts: list[int | None] | None = None) -> Iterator[tuple[Relay, str]]:
    """A relay to `port` and its own URL."""
    relay = Relay(port, cuts or [])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=relay.serve, args=(listener,))
        thread.start()
        try:
            yield relay, f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


linux = pytest.mark.skipif(sys.platform != "linux", reason="the counters are Linux's")
