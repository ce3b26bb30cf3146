"""Taking connections, as long as there are descriptors for what they will need."""

import asyncio
import errno
import functools
import os
import socket
from typing import Any

import uvicorn

from phonograd.server_agg.http import wire
from phonograd.server_agg.http.tcp import count_socket
from phonograd.server_agg.shortages import ACCEPTING, ACCEPTING_AGAIN, beyond, in_use, note, shortage_in

# A client that connected and asked for nothing in so long makes room; below asyncio's second until it accepts again.
MAKE_ROOM_SECONDS = 0.5


class NoDescriptorError(OSError):
    """A connection waits until others have ended."""


class ReservingListener(socket.socket):
    """Accepts CountedSockets; nobody from when 90 % of the process's descriptors are in use until 80 % are.

    asyncio calls `accept` until nobody waits, and stops doing so for a second after an EMFILE.
    """

    _full = False
    _pausing = False
    _base = 0  # descriptors of the server's own, which never go

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection, and its address. Raises NoDescriptorError, then BlockingIOError, which ends its turn."""
        if self._pausing:
            self._pausing = False
            raise BlockingIOError
        self._base = self._base or in_use()
        if self._full and (used := in_use()) > self._base + 1 and beyond(ACCEPTING_AGAIN, used):
            self._pause()
        try:
            accepted, address = super().accept()
        except OSError as error:
            if shortage_in(error) is None:
                raise
            self._pause()
        self._full = beyond(ACCEPTING, accepted.fileno())
        return count_socket(accepted), address

    def _pause(self) -> None:
        self._full = self._pausing = True
        note("open files")
        asyncio.get_running_loop().call_later(MAKE_ROOM_SECONDS, wire.turn_away, MAKE_ROOM_SECONDS)
        raise NoDescriptorError(errno.EMFILE, os.strerror(errno.EMFILE))


class HttpServer(uvicorn.Server):
    """uvicorn's, which gives TLS no time of its own choice, and whose listeners say themselves what they lack."""

    def __init__(self, config: uvicorn.Config, idle_seconds: float):
        super().__init__(config)
        self._idle_seconds = idle_seconds

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen at `sockets`."""
        loop, config = asyncio.get_running_loop(), self.config
        loop.set_exception_handler(_hear)
        protocol = functools.partial(
            wire.CountingProtocol,
            self._idle_seconds,
            config=config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )
        seconds = wire.HEAD_SECONDS if config.ssl else None
        self.servers = [
            await loop.create_server(
                protocol, sock=sock, ssl=config.ssl, backlog=config.backlog, ssl_handshake_timeout=seconds
            )
            for sock in sockets or ()
        ]
        self.started = True


def _hear(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if not isinstance(context.get("exception"), NoDescriptorError):
        loop.default_exception_handler(context)
