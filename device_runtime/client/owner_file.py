"""The owner file: it gives commands of the user who started a server that server's admin token.

A server writes its URL and the admin token of its run to a file that only its user can read, named after the port.
Commands of the same user on the same machine read it. The token is valid until the server stops.
"""

import contextlib
import dataclasses
import getpass
import json
import os
from collections.abc import Iterator
from pathlib import Path

import httpx

from phonograd.device_runtime.base.errors import StorageError, UsageError
from phonograd.device_runtime.base.files import storage_errors
from phonograd.device_runtime.client.connection import Connection
from phonograd.device_runtime.client.protocol import is_loopback

DEFAULT_PORTS = {"http": 80, "https": 443}


def user_state_folder() -> Path:
    """phonograd's folder of what is kept for this user (XDG). Raises StorageError without a home."""
    base = os.environ.get("XDG_STATE_HOME")
    try:
        home = Path(base) if base else Path.home() / ".local" / "state"
    except RuntimeError as error:
        raise StorageError("no home folder is known; set HOME or XDG_STATE_HOME") from error
    return home / "phonograd"


def owner_file(port: int) -> Path:
    """The owner file of the server on `port`. Raises StorageError without a home."""
    return user_state_folder() / "servers" / f"{port}.json"


@contextlib.contextmanager
def owner_file_written(url: str, token: str) -> Iterator[None]:
    """Write the owner file of the server at `url`, an address of this machine; remove it at the end of the block.

    Raises StorageError.
    """
    path = owner_file(_port(httpx.URL(url)))
    document = json.dumps({"url": url, "token": token}).encode()
    with storage_errors(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}")
        partial.unlink(missing_ok=True)
        partial.touch(0o600, exist_ok=False)
        partial.write_bytes(document)
        partial.replace(path)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            if path.read_bytes() == document:  # else it belongs to a later server
                path.unlink()


def with_owner_token(connection: Connection) -> Connection:
    """The connection with the server's admin token, if this user started the server on this machine; else unchanged.

    A connection with a token is returned unchanged. Raises UsageError if others can read the owner file.
    """
    if connection.token is not None:
        return connection
    try:
        url = httpx.URL(connection.url)
    except httpx.InvalidURL:
        return connection  # reported when it is used
    if url.scheme not in DEFAULT_PORTS or not is_loopback(url.host):
        return connection
    entry = _read(_port(url))
    if entry is None:
        return connection
    known, token = entry
    if (url.scheme, _port(url)) != (known.scheme, _port(known)) or url.host not in ("localhost", known.host):
        return connection
    # On the other address family, `localhost` may be another user's program. TLS would detect that.
    address = connection.url if url.host == known.host or url.scheme == "https" else str(known)
    return dataclasses.replace(connection, url=address, token=token)


def operator_name() -> str:
    """The user of this machine, for the audit log: `operator:USER`, which is not a valid name of a phone."""
    try:
        return f"operator:{getpass.getuser()}"
    except (KeyError, OSError, ImportError):  # a user id without a name, as in some containers
        return "operator:?"


def _read(port: int) -> tuple[httpx.URL, str] | None:
    """URL and token; None if there is no such file, or no server of this user wrote it. Windows runs no server."""
    if not hasattr(os, "geteuid"):
        return None
    try:
        path = owner_file(port)
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            document = json.loads(file.read(4096))
        url, token = httpx.URL(document["url"]), str(document["token"])
    except (OSError, StorageError, ValueError, KeyError, TypeError, httpx.InvalidURL):
        return None
    if status.st_uid != os.geteuid():
        return None
    if status.st_mode & 0o077:
        raise UsageError(
            f"{path}: mode 600 expected, found {status.st_mode & 0o777:o}: others could read the server's admin token; "
            "chmod 600, and restart the server"
        )
    return url, token


def _port(url: httpx.URL) -> int:
    return url.port or DEFAULT_PORTS.get(url.scheme, 0)
