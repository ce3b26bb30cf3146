"""What tests of faults have in common: phones that break off, and the ledger looked at."""

import contextlib
import socket
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from phonograd.device_runtime.client.connection import RetryPolicy
from phonograd.server_agg.report.document import MESSAGES_UP
from tests.server_agg.tus_phone import TusPhone
from tests.server_agg.workshop import RunningServer
from tests.support.waiting import PATIENCE_SECONDS, until

QUICK = RetryPolicy(attempts=500, first_wait_seconds=0.001, longest_wait_seconds=0.01)
KINDS = ("useful_bytes", "retried_bytes", "rejected_bytes", "late_bytes", "unfinished_bytes")


def raising(error: BaseException) -> Callable[..., Any]:
    """What raises `error`, whatever it is called with."""

    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def adds_up(entry: dict[str, Any]) -> bool:
    return sum(entry[kind] for kind in (*KINDS, *MESSAGES_UP)) == entry["up_body_bytes"]


def states(server: RunningServer) -> list[tuple[str, str]]:
    with contextlib.closing(sqlite3.connect(server.state / "ledger.sqlite")) as ledger:
        return sorted(ledger.execute("SELECT phone, state FROM updates").fetchall())


@contextlib.contextmanager
def half_sent(server: RunningServer, phone: TusPhone, nbytes: int) -> Iterator[socket.socket]:
    """A connection on which a PATCH of all of `phone`'s data has come as far as `nbytes`, on disk."""
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(phone.patch_head() + phone.data[:nbytes])
        until(arriving(server, phone).exists)
        yield connection


def arriving(server: RunningServer, phone: TusPhone) -> Path:
    return server.coordinator.folder.upload(phone.path.rpartition("/")[2])


def answer_on(connection: socket.socket) -> bytes:
    connection.settimeout(PATIENCE_SECONDS)
    return connection.recv(1 << 16)
