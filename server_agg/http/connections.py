"""Connections that keep a server waiting."""

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

# From connecting, or from the answer before it, to the end of a request's headers.
HEAD_SECONDS = 20.0


class HeadDeadlineProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 protocol, closing connections whose next request is not there within HEAD_SECONDS.

    Bytes that trickle in do not help: neither a head without end (Slowloris), nor the body of a request that is refused
    already, whose sender has this long to read why. A request that is being served takes the time it takes.
    """

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect a request."""
        super().connection_made(transport)
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Expect nothing more."""
        self._stop_expecting()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Go on with what came, and see whether a request is among it."""
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_expecting()

    def on_response_complete(self) -> None:
        """Expect the next request."""
        self._expect_request()
        super().on_response_complete()

    def _expect_request(self) -> None:
        self._stop_expecting()
        self._deadline = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _stop_expecting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
