"""Where a server listens, and how the user who started it reaches it."""

import contextlib
import logging
import socket
from collections.abc import Iterator
from dataclasses import dataclass

from phonograd.device_runtime.base.errors import PhonogradError, StorageError
from phonograd.device_runtime.base.system import most_open_files
from phonograd.device_runtime.client.owner_file import owner_file_written
from phonograd.server_agg.http.accepting import ReservingListener
from phonograd.server_agg.security.tls import tls_files
from phonograd.server_agg.settings.server import ServerSettings
from phonograd.server_agg.shortages import MOST_DESCRIPTORS

log = logging.getLogger(__name__)


class ServerAddressError(PhonogradError):
    """The server cannot listen at the address it was given."""

    exit_code = 13


class Listener:
    """The server's bound address and TLS files, checked before its state is touched. The process gets more descriptors.

    descriptor: of a socket that listens already, another process's. Raises ServerAddressError, TlsError.
    """

    def __init__(self, settings: ServerSettings, descriptor: int | None = None):
        self.tls = tls_files(settings.security)
        most_open_files(raised_to=MOST_DESCRIPTORS)
        inherited = None if descriptor is None else ReservingListener(fileno=descriptor)
        self.socket = inherited or _listen(settings.host, settings.port)

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()


@dataclass
class Address:
    """url: where a server listens; local_url: the same, as reached from this machine. admin_url: a secret link that
    logs a browser in as an administrator while the server runs; `url` without authentication. admin_token: the same
    for programs; None without authentication.
    """

    url: str
    local_url: str
    admin_url: str
    admin_token: str | None

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


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        both = host == "::" and socket.has_dualstack_ipv6()  # as it is for most servers: all addresses
        listener = socket.create_server((host, port), family=family, dualstack_ipv6=both)
    except OSError as error:
        raise ServerAddressError(
            f"{host}:{port}: cannot listen there: {error.strerror or error}; choose another `port` or `host`"
        ) from error
    return ReservingListener(fileno=listener.detach())
