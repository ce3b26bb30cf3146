"""The ledger: models, rounds, updates and the bytes of all traffic, in SQLite.

Write-ahead log with synchronous=FULL: a committed row survives a power cut, and a report can be read while an upload
is written. What must be consistent is written in one transaction: a round's end, its model and the next round.
"""

import contextlib
import dataclasses
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import ConnectionPoolEntry

from phonograd.device_runtime.base.errors import StorageError
from phonograd.server_agg.storage import migrations
from phonograd.server_agg.storage.tables import TRAFFIC_COUNTERS, Base, Traffic, TrafficKind

# Another process may write too (`phonograd tokens`); waiting for it fails after this long.
BUSY_SECONDS = 30.0


@dataclass(frozen=True)
class WireBytes:
    """Bytes of requests on an HTTP/1.1 connection: headers with request and status lines, and bodies."""

    up_headers: int = 0
    up_body: int = 0
    down_headers: int = 0
    down_body: int = 0
    requests: int = 1

    def __add__(self, other: "WireBytes") -> "WireBytes":
        return WireBytes(
            self.up_headers + other.up_headers,
            self.up_body + other.up_body,
            self.down_headers + other.down_headers,
            self.down_body + other.down_body,
            self.requests + other.requests,
        )

    def without(self, body: int) -> "WireBytes":
        """The rest, if `body` bytes of the request's body are counted elsewhere.

        If `body` is more than the counted body, the difference is taken from the headers, so that the sum stays right.
        """
        beyond = max(0, body - self.up_body)
        return dataclasses.replace(self, up_headers=self.up_headers - beyond, up_body=max(0, self.up_body - body))


class Ledger:
    """The ledger at `path`, created if missing (unless `create` is false); thread-safe.

    A ledger of an earlier release is migrated first (`migrations`).

    Every method raises StorageError if SQLite fails: disk full, file damaged, not a ledger.
    """

    def __init__(self, path: Path, create: bool = True, clock: Callable[[], float] = time.time):
        if not create and not path.is_file():
            raise StorageError(f"{path}: no ledger found; expected the state folder of a `phonograd serve`")
        self.path = path
        self.clock = clock
        self._engine = _connect(path)
        self._readers = sessionmaker(self._engine, expire_on_commit=False)
        self._writers = sessionmaker(self._engine.execution_options(immediate=True), expire_on_commit=False)
        self._write_lock = threading.Lock()  # SQLite has one writer; a lock is fairer than its busy timeout
        self._traffic_lock = threading.Lock()
        self._traffic: dict[tuple[int, str, TrafficKind], WireBytes] = {}
        try:
            with self._errors():
                self._prepare(create)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    @contextlib.contextmanager
    def reading(self) -> Iterator[Session]:
        """A read-only session on a snapshot of the ledger."""
        with self._errors(), self._readers() as session:
            yield session

    @contextlib.contextmanager
    def writing(self) -> Iterator[Session]:
        """A session whose changes are committed and durable when the block ends, or rolled back if it raises.

        Also writes the traffic counted so far.
        """
        with self._errors(), self._write_lock:
            taken = self._take_traffic()
            try:
                with self._writers.begin() as session:
                    for key, wire in taken.items():
                        add_traffic(session, *key, wire)
                    yield session
            except BaseException:
                for key, wire in taken.items():
                    self.count(*key, wire)
                raise

    def count(self, number: int, phone: str, kind: TrafficKind, wire: WireBytes) -> None:
        """Add bytes on the wire to round `number`; in memory until the next `writing` or `flush`."""
        key = (number, phone, kind)
        with self._traffic_lock:
            known = self._traffic.get(key)
            self._traffic[key] = wire if known is None else known + wire

    def flush(self) -> None:
        """Write the traffic that is only counted in memory."""
        if self._traffic:
            with self.writing():
                pass

    def _take_traffic(self) -> dict[tuple[int, str, TrafficKind], WireBytes]:
        with self._traffic_lock:
            taken, self._traffic = self._traffic, {}
        return taken

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise StorageError(
                f"{self.path}: the ledger failed: {error.orig}; free disk space, or restore the state folder"
            ) from error

    def _prepare(self, create: bool) -> None:
        with self._engine.connect() as connection:
            if migrations.version_of(connection) == migrations.VERSION:
                return  # without the write lock
        with self._engine.execution_options(immediate=True).begin() as connection:
            if migrations.version_of(connection) == 0 and create:
                Base.metadata.create_all(connection)
                migrations.set_version(connection, migrations.VERSION)
                return
            migrations.migrate(connection, self.path)
        self._vacuum()

    def _vacuum(self) -> None:
        """Rewrite the file without the data that a migration dropped: earlier versions stored noise keys in it."""
        connection = self._engine.raw_connection()
        try:
            assert isinstance(connection.driver_connection, sqlite3.Connection)
            for statement in ("VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"):
                connection.driver_connection.execute(statement).close()
        finally:
            connection.close()


def add_traffic(session: Session, number: int, phone: str, kind: TrafficKind, wire: WireBytes) -> None:
    """Add bytes to a round's and phone's traffic, within the caller's transaction."""
    row = insert(Traffic).values(
        round=number,
        phone=phone,
        kind=kind,
        requests=wire.requests,
        up_header_bytes=wire.up_headers,
        up_body_bytes=wire.up_body,
        down_header_bytes=wire.down_headers,
        down_body_bytes=wire.down_body,
    )
    session.execute(
        row.on_conflict_do_update(
            index_elements=["round", "phone", "kind"],
            set_={name: getattr(Traffic, name) + row.excluded[name] for name in TRAFFIC_COUNTERS},
        )
    )


def _connect(path: Path) -> Engine:
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        connect_args={"timeout": BUSY_SECONDS, "check_same_thread": False},
        max_overflow=-1,  # one per reading thread: waiting for another thread's connection could deadlock
    )

    @event.listens_for(engine, "connect")
    def configure(connection: DBAPIConnection, entry: ConnectionPoolEntry) -> None:
        del entry
        assert isinstance(connection, sqlite3.Connection)
        # Otherwise sqlite3 begins a transaction at the first write only, and reads see no snapshot.
        connection.isolation_level = None
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A writer locks at once: after a read, another process could have made its snapshot stale.
        connection.exec_driver_sql(
            "BEGIN IMMEDIATE" if connection.get_execution_options().get("immediate") else "BEGIN"
        )

    return engine
