"""An aggregation server: in this thread until a signal, or in a thread of its own."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from phonograd.api.inputs import StrPath, artifacts_of
from phonograd.device_runtime.client.connection import Connection
from phonograd.device_runtime.formats.manifest import Artifacts
from phonograd.server_agg.listening import Listener
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.rounds.responses import OpenRound
from phonograd.server_agg.server import AggregationServer
from phonograd.server_agg.server import serve as serve_until_signal
from phonograd.server_agg.settings.server import ServerSettings


class RunningServer(contextlib.AbstractContextManager["RunningServer"]):
    """A server that answers until `close`; made by `start_server`."""

    def __init__(self, server: AggregationServer, coordinator: Coordinator, resources: contextlib.ExitStack):
        self._server = server
        self._coordinator = coordinator
        self._resources = resources

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Address for phones on this machine."""
        return self._server.local_url

    @property
    def admin_url(self) -> str:
        """The dashboard, for a browser; a secret as long as the server runs."""
        return self._server.admin_url

    @property
    def admin(self) -> Connection:
        """A connection that may do what administrators do; over TLS the system must trust the certificate."""
        return Connection(self._server.local_url, self._server.admin_token)

    @property
    def current(self) -> OpenRound:
        """The open round."""
        return self._coordinator.current

    def close(self) -> None:
        """Stop taking requests, wait a few seconds at most for those under way, and close the state folder."""
        self._resources.close()


def start_server(
    artifacts: Artifacts | StrPath, state: StrPath, settings: ServerSettings | None = None
) -> RunningServer:
    """Start a server in a thread of its own; use it as a context, or `close` it. It takes connections from here on.

    artifacts: what phones train from; state: the folder of rounds, models and ledger, made if it is not there.
    settings: None is the default on a free port of this machine. Raises ArtifactsError, StorageError, WeightsError,
    ServerAddressError, TlsError.
    """
    settings = settings or ServerSettings(port=0)
    with contextlib.ExitStack() as resources:
        listener, coordinator = resources.enter_context(_open_server(artifacts, state, settings))
        server = AggregationServer(coordinator, settings, listener)
        resources.enter_context(server.owner_file())
        thread = threading.Thread(target=server.run, name="phonograd-server")
        thread.start()
        resources.callback(thread.join)
        resources.callback(server.stop)
        return RunningServer(server, coordinator, resources.pop_all())


def serve(
    artifacts: Artifacts | StrPath,
    state: StrPath,
    settings: ServerSettings,
    on_ready: Callable[[AggregationServer, OpenRound], None],
) -> None:
    """Serve until SIGINT or SIGTERM, in the main thread; on_ready hears of the server once it takes connections.

    Raises as `start_server` does.
    """
    with _open_server(artifacts, state, settings) as (listener, coordinator):
        serve_until_signal(coordinator, settings, listener, lambda server: on_ready(server, coordinator.current))


@contextlib.contextmanager
def _open_server(
    artifacts: Artifacts | StrPath, state: StrPath, settings: ServerSettings
) -> Iterator[tuple[Listener, Coordinator]]:
    folder = artifacts_of(artifacts)
    with (
        contextlib.closing(Listener(settings)) as listener,
        contextlib.closing(Coordinator(folder, Path(state), settings)) as coordinator,
    ):
        yield listener, coordinator
