"""The ledger: models, rounds, updates and every byte that came or went, in SQLite.

Write-ahead log with synchronous=FULL: a committed row survives a power cut, and a report reads while an upload is
being written. What must be true together is written in one transaction: a round's end, its model and the next round.
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

# Another process may write too (`phonograd tokens`); waiting for it ends in an error after this long.
BUSY_SECONDS = 30.0


@dataclass(frozen=True)
class WireBytes:
    """What requests cost on an HTTP/1.1 wire, in bytes: headers with request and status lines, and bodies."""

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
        """The rest, where `body` bytes of the request's body are counted elsewhere.

        Where they are more than its body, headers were written shorter than we thought: the sum is the same.
        """
        beyond = max(0, body - self.up_body)
        return dataclasses.replace(self, up_headers=self.up_headers - beyond, up_body=max(0, self.up_body - body))


class Ledger:
    """The ledger at `path`, made if it is not there (unless `create` is false); safe to use from several threads.

    A ledger of an earlier release is brought to today's tables first (`migrations`).

    Every method raises StorageError if SQLite refuses: disk full, file damaged, not a ledger.
    """

    def __init__(self, path: Path, create: bool = True, clock: Callable[[], float] = time.time):
        if not create and not path.is_file():
            raise StorageError(f"{path}: no ledger here; expected a state folder that `phonograd serve` has written")
        self.path = path
        self.clock = clock
        self._engine = _connect(path)
        self._readers = sessionmaker(self._engine, expire_on_commit=False)
        self._writers = sessionmaker(self._engine.execution_options(immediate=True), expire_on_commit=False)
        self._write_lock = threading.Lock()  # SQLite has one writer; waiting here is surer than its busy timeout
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
        """A session on one snapshot of the ledger, for queries."""
        with self._errors(), self._readers() as session:
            yield session

    @contextlib.contextmanager
    def writing(self) -> Iterator[Session]:
        """A session whose changes are durable, all of them, when the block ends; none of them if it raises.

        Takes the traffic counted so far along.
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
        """Count bytes on the wire to round `number`; in memory until the next `writing` or `flush`."""
        key = (number, phone, kind)
        with self._traffic_lock:
            known = self._traffic.get(key)
            self._traffic[key] = wire if known is None else known + wire

    def flush(self) -> None:
        """Write down the traffic that is counted in memory only."""
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
                f"{self.path}: the ledger refused: {error.orig}; free space, or restore the state folder"
            ) from error

    def _prepare(self, create: bool) -> None:
        with self._engine.connect() as connection:
            if migrations.version_of(connection) == migrations.VERSION:
                return  # without the writer's lock
        with self._engine.execution_options(immediate=True).begin() as connection:
            if migrations.version_of(connection) == 0 and create:
                Base.metadata.create_all(connection)
                migrations.set_version(connection, migrations.VERSION)
                return
            migrations.migrate(connection, self.path)
        self._forget_what_was_deleted()

    def _forget_what_was_deleted(self) -> None:
        """Write the ledger anew without what a migration dropped: earlier versions kept keys in it."""
        connection = self._engine.raw_connection()
        try:
            assert isinstance(connection.driver_connection, sqlite3.Connection)
            for statement in ("VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"):
                connection.driver_connection.execute(statement).close()
        finally:
            connection.close()


def add_traffic(session: Session, number: int, phone: str, kind: TrafficKind, wire: WireBytes) -> None:
    """Add bytes on the wire to a round's and phone's, within the caller's transaction."""
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
        max_overflow=-1,  # as many as there are threads that read: one that waited for another's would be stuck with it
    )

    @event.listens_for(engine, "connect")
    def configure(connection: DBAPIConnection, entry: ConnectionPoolEntry) -> None:
        del entry
        assert isinstance(connection, sqlite3.Connection)
        # Else sqlite3 begins transactions at the first write, and reads see no snapshot.
        connection.isolation_level = None
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A writer takes its lock at once: one that read first could find its snapshot outdated by another process.
        connection.exec_driver_sql(
            "BEGIN IMMEDIATE" if connection.get_execution_options().get("immediate") else "BEGIN"
        )

    return engine
