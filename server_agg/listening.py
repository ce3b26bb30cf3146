"""Where a server listens."""

import socket

from phonograd.device_runtime.base.errors import PhonogradError
from phonograd.device_runtime.base.system import most_open_files
from phonograd.server_agg.http.accepting import ReservingListener
from phonograd.server_agg.security.tls import tls_files
from phonograd.server_agg.settings.server import ServerSettings
from phonograd.server_agg.shortages import MOST_DESCRIPTORS


class ServerAddressError(PhonogradError):
    """The server cannot listen at the address it was given."""

    exit_code = 13


class Listener:
    """The server's bound address and TLS files, checked before its state is touched. The process gets more descriptors.

    Raises ServerAddressError, TlsError.
    """

    def __init__(self, settings: ServerSettings):
        self.tls = tls_files(settings.security)
        most_open_files(raised_to=MOST_DESCRIPTORS)
        self.socket = _listen(settings.host, settings.port)

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()


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
