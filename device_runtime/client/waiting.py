"""Waiting for a server that is starting on this machine."""

import socket
import time
from collections.abc import Callable

import httpx

from phonograd.device_runtime.client.connection import TIMEOUT, Connection, http_client
from phonograd.device_runtime.client.protocol import is_loopback

WAIT_SECONDS = 10.0
PAUSE_SECONDS = 0.1


def wait_for_server(connection: Connection, seconds: float, waiting: Callable[[], None]) -> None:
    """Wait up to so many seconds for a server at a loopback address that refuses connections, as one that starts does.

    waiting: called before the wait, if there is one. If the server still refuses then, the next request tells.
    """
    url = httpx.URL(connection.url)
    if not (seconds and is_loopback(url.host) and _refuses(url)):
        return
    waiting()
    deadline = time.monotonic() + seconds
    while _refuses(url):
        if time.monotonic() >= deadline:
            return
        time.sleep(PAUSE_SECONDS)
    with http_client(connection) as client:  # a server listens before it is ready, and answers once it is
        client.get("/livez")


def _refuses(url: httpx.URL) -> bool:
    port = url.port or {"http": 80, "https": 443}[url.scheme]
    try:
        socket.create_connection((url.host, port), TIMEOUT.connect).close()
    except ConnectionRefusedError:
        return True
    except OSError:  # the request that follows tells it
        return False
    return False
