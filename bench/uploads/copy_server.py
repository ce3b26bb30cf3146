"""The ceiling of `bench ingest`: it copies a TCP connection's bytes to a file."""

import json
import socket
import sys
import threading
from pathlib import Path

from phonograd.bench.uploads.sending import HOST

COPY_BYTES = 1 << 20


def copy(connection: socket.socket, path: Path) -> None:
    """Copy all bytes of `connection` to `path`, then close both."""
    buffer = memoryview(bytearray(COPY_BYTES))
    with connection, path.open("wb", buffering=0) as file:
        while count := connection.recv_into(buffer):
            file.write(buffer[:count])


def main() -> None:
    """Entry point; argument: the folder. Prints {"port": ...} once it listens; one thread per connection."""
    with socket.create_server((HOST, 0), backlog=128) as listening:
        sys.stdout.write(json.dumps({"port": listening.getsockname()[1]}) + "\n")
        sys.stdout.flush()
        for number in range(sys.maxsize):
            connection, _ = listening.accept()
            path = Path(sys.argv[1]) / f"{number}"
            threading.Thread(target=copy, args=(connection, path), daemon=True).start()
