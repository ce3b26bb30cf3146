"""The ceiling of `bench ingest`: what comes over a TCP connection, into a file."""

import json
import socket
import sys
import threading
from pathlib import Path

from phonograd.bench.uploads.sending import HOST

COPY_BYTES = 1 << 20


def copy(connection: socket.socket, path: Path) -> None:
    """All that comes over `connection`, into `path`; then close both."""
    buffer = memoryview(bytearray(COPY_BYTES))
    with connection, path.open("wb", buffering=0) as file:
        while count := connection.recv_into(buffer):
            file.write(buffer[:count])


def main() -> None:
    """Entry point: the folder. Says {"port": ...} once it listens; copies until it is killed, a thread a connection."""
    with socket.create_server((HOST, 0), backlog=128) as listening:
        sys.stdout.write(json.dumps({"port": listening.getsockname()[1]}) + "\n")
        sys.stdout.flush()
        for number in range(sys.maxsize):
            connection, _ = listening.accept()
            path = Path(sys.argv[1]) / f"{number}"
            threading.Thread(target=copy, args=(connection, path), daemon=True).start()
