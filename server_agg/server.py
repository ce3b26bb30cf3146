"""Running the application: bind an address, serve until a signal or `stop`."""

import contextlib
import gc
import logging
import math
import signal
import threading
from collections.abc import Callable, Collection, Iterator

import uvicorn

from phonograd.device_runtime.base.errors import StorageError
from phonograd.device_runtime.client.owner_file import owner_file_written
from phonograd.server_agg.aggregation.privacy.budget import idle_cost_warning
from phonograd.server_agg.app import create_app
from phonograd.server_agg.http.accepting import HttpServer
from phonograd.server_agg.http.wire import MAX_HEAD_BYTES
from phonograd.server_agg.listening import Listener
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.security.owner import Owner
from phonograd.server_agg.security.registry import PhoneRegistry
from phonograd.server_agg.settings.server import ServerSettings
from phonograd.server_agg.shortages import noted_shortage

log = logging.getLogger(__name__)

TICK_SECONDS = 1.0
BEAT_SECONDS = 0.25
# The loopback address of a server that listens on all addresses.
LOOPBACK = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}
# Grace period for running requests at shutdown; a phone resumes an upload that was cut off.
SHUTDOWN_SECONDS = 5


class AggregationServer:
    """A server that listens at `listener`, and serves requests during `run`.

    url: where it listens; local_url: the same, as reached from this machine. admin_url: a secret link that logs a
    browser in as an administrator while the server runs; `url` without authentication. admin_token: the same for
    programs; None without authentication.
    """

    def __init__(self, coordinator: Coordinator, settings: ServerSettings, listener: Listener):
        self._coordinator = coordinator
        _warn(coordinator, settings)
        self._socket = listener.socket
        owner, asks = Owner(), coordinator.security.auth != "none"
        scheme, address = "https" if listener.tls else "http", self._socket.getsockname()
        self.url = _url(scheme, settings.host, address[1])
        self.local_url = _url(scheme, LOOPBACK.get(address[0], address[0]), address[1])
        admin_url = _url(scheme, LOOPBACK.get(settings.host, settings.host), address[1]) + owner.link
        self.admin_url = admin_url if asks else self.url
        self.admin_token = owner.token if asks else None
        config = uvicorn.Config(
            create_app(coordinator, settings, owner),
            loop="asyncio",
            http="h11",
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
            **listener.tls,
        )
        self._server = HttpServer(config, settings.idle_seconds)

    @property
    def requests(self) -> Collection[object]:
        """One item per running request, whose bytes are not counted yet."""
        return self._server.server_state.tasks

    @contextlib.contextmanager
    def owner_file(self) -> Iterator[None]:
        """Within the block, commands of the same user find the admin token in a file (see client/owner_file).

        If the file cannot be written, the server runs without it and logs a warning.
        """
        with contextlib.ExitStack() as stack:
            if self.admin_token is not None:
                try:
                    stack.enter_context(owner_file_written(self.local_url, self.admin_token))
                except StorageError as error:
                    log.warning("admin commands on this machine need a token: %s", error)
            yield

    def run(self) -> None:
        """Serve until `stop`, or until a signal within `handling_signals`."""
        stopped, due = threading.Event(), threading.Event()
        threads = [threading.Thread(target=_tick, args=(self._coordinator, stopped, due), name="rounds")]
        if self._coordinator.ledger.shared:
            threads.append(threading.Thread(target=_beat, args=(self._coordinator, stopped, due), name="beats"))
        for thread in threads:
            thread.start()
        try:
            self._server.run(sockets=[self._socket])
        finally:
            stopped.set()
            due.set()
            for thread in threads:
                thread.join()
            self._socket.close()

    def stop(self) -> None:
        """Make `run` return, also if it is called later. Thread-safe."""
        self._server.should_exit = True

    @contextlib.contextmanager
    def handling_signals(self) -> Iterator[None]:
        """Within the block, SIGINT and SIGTERM stop the server, before `run` as well as during it.

        For the main thread. uvicorn installs its own handlers while it runs and re-raises the signal afterwards, which
        has no effect here.
        """
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self._server.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def serve(
    coordinator: Coordinator,
    settings: ServerSettings,
    listener: Listener,
    on_ready: Callable[[AggregationServer], None],
) -> None:
    """Serve until SIGINT or SIGTERM. `on_ready` gets the server once it accepts connections; its errors propagate."""
    server = AggregationServer(coordinator, settings, listener)
    # Signals first: a caller that was told the server is ready may stop it at once.
    with server.handling_signals(), server.owner_file():
        on_ready(server)
        gc.freeze()  # what is here by now stays; the collector need not look through it again and again
        server.run()


def _tick(coordinator: Coordinator, stopped: threading.Event, due: threading.Event) -> None:
    """Tick, at once where it is `due`, until `stopped`, then once more to write the traffic counted last."""
    running = True
    while running:
        due.wait(TICK_SECONDS)
        due.clear()
        running = not stopped.is_set()
        try:
            coordinator.tick()
        except Exception as error:  # a full disk may have space at the next tick; a bug must not stop the deadlines
            if noted_shortage(error) is None:
                log.exception("the periodic work of the round failed; retrying")


def _beat(coordinator: Coordinator, stopped: threading.Event, due: threading.Event) -> None:
    """Beat until `stopped`, apart from ticks, which may take seconds."""
    while not stopped.wait(BEAT_SECONDS):
        with contextlib.suppress(StorageError, MemoryError):  # ticks fail too, and say so
            if coordinator.beat():
                due.set()


def _warn(coordinator: Coordinator, settings: ServerSettings) -> None:
    for line in coordinator.security.warnings(settings.host):
        log.warning(line)
    if settings.strategy.private:
        log.warning(idle_cost_warning(settings.strategy, settings.rules.deadline_seconds or math.inf))
    if coordinator.security.asks_for_tokens(settings.host) and not PhoneRegistry(coordinator.ledger).phones():
        log.warning("no phone is enrolled yet; enrol one with: phonograd tokens add NAME --state DIR")


def _url(scheme: str, host: str, port: int) -> str:
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
