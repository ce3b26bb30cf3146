"""Running the application: bind, say where, serve until a signal or `stop`."""

import contextlib
import logging
import signal
import socket
import threading
from collections.abc import Callable, Collection, Iterator
from types import FrameType

import uvicorn

from device_runtime.errors import PhonogradError
from server_agg.http.app import create_app
from server_agg.http.wire import CountingProtocol
from server_agg.rounds.keeper import RoundKeeper
from server_agg.security.registry import PhoneRegistry
from server_agg.security.tls import tls_files
from server_agg.settings import ServerSettings

log = logging.getLogger(__name__)

TICK_SECONDS = 1.0
# Uploads under way when the server is told to stop get this long; a phone sends again what was cut off.
STOP_SECONDS = 5


class ServerAddressError(PhonogradError):
    """The server cannot listen at the address it was given."""

    exit_code = 13


class AggregationServer:
    """A server that listens from here on and serves while `run` runs. Raises ServerAddressError, TlsError."""

    def __init__(self, keeper: RoundKeeper, settings: ServerSettings):
        self._keeper = keeper
        tls = tls_files(settings.security)
        _warn(keeper, settings)
        self._socket = _listen(settings.host, settings.port)
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        self.url = f"{'https' if tls else 'http'}://{host}:{self._socket.getsockname()[1]}"
        config = uvicorn.Config(
            create_app(keeper, settings),
            loop="asyncio",
            http=CountingProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=STOP_SECONDS,
            **tls,
        )
        self._server = uvicorn.Server(config)

    @property
    def requests(self) -> Collection[object]:
        """One item for each request that is not over, its bytes not yet counted."""
        return self._server.server_state.tasks

    def run(self) -> None:
        """Serve until `stop`, SIGINT or SIGTERM (signals: in the main thread only), then return."""
        stopped = threading.Event()
        clockwork = threading.Thread(target=_tick, args=(self._keeper, stopped), name="rounds")
        clockwork.start()
        try:
            with _quiet_signals():
                self._server.run(sockets=[self._socket])
        finally:
            stopped.set()
            clockwork.join()
            self._socket.close()

    def stop(self) -> None:
        """Make `run` return soon; from any thread."""
        self._server.should_exit = True


def serve(keeper: RoundKeeper, settings: ServerSettings, on_ready: Callable[[str], None] | None = None) -> None:
    """Serve until SIGINT or SIGTERM. `on_ready` gets the URL once connections are taken. Raises as it does."""
    server = AggregationServer(keeper, settings)
    if on_ready is not None:
        on_ready(server.url)
    server.run()


def _tick(keeper: RoundKeeper, stopped: threading.Event) -> None:
    """Let time pass for the keeper until `stopped`; once more at the end, for what is counted and not written down."""
    running = True
    while running:
        running = not stopped.wait(TICK_SECONDS)
        try:
            keeper.tick()
        except Exception:  # a disk that refuses now may take it at the next tick; a bug must not end the deadlines
            log.exception("what time brings to the round went wrong; it is tried again")


def _warn(keeper: RoundKeeper, settings: ServerSettings) -> None:
    for line in settings.security.warnings(settings.host):
        log.warning(line)
    if settings.security.asks_for_tokens(settings.host) and not PhoneRegistry(keeper.ledger).phones():
        log.warning("nobody is enrolled yet; enrol phones with: phonograd phones add NAME --state DIR")


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise ServerAddressError(
            f"{host}:{port}: cannot listen there: {error.strerror or error}; choose another --port or --host"
        ) from error


@contextlib.contextmanager
def _quiet_signals() -> Iterator[None]:
    """uvicorn raises the signal that stopped it once more afterwards; here it has done its work by then."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ignore(number: int, frame: FrameType | None) -> None:
        del number, frame

    before = {number: signal.signal(number, ignore) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
