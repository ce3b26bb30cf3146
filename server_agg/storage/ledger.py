"""The ledger: models, rounds, updates and the bytes of all traffic, in SQLite or PostgreSQL.

A committed row survives a power cut (SQLite: a write-ahead log with synchronous=FULL), and a report can be read while
an upload is written. What must be consistent is in one transaction: a round's end, its model and the next round.
"""

import contextlib
import secrets
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from sqlalchemy import bindparam, update
from sqlalchemy.exc import DBAPIError, InvalidRequestError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import Session, sessionmaker

from phonograd.device_runtime.base.errors import StorageError
from phonograd.server_agg.settings.storage import ServerStorage
from phonograd.server_agg.storage import migrations
from phonograd.server_agg.storage.damage import damage_in
from phonograd.server_agg.storage.databases import cure_of, database_at
from phonograd.server_agg.storage.folder_claim import LEDGER
from phonograd.server_agg.storage.tables import UPDATES, Traffic, TrafficKind


@dataclass(frozen=True)
class WireBytes:
    """Bytes of requests on an HTTP/1.1 connection: headers with request and status lines, and bodies.

    up_tcp, down_tcp: what TCP carried of them, TLS included; None if the kernel does not tell.
    """

    up_headers: int = 0
    up_body: int = 0
    down_headers: int = 0
    down_body: int = 0
    requests: int = 1
    up_tcp: int | None = 0
    down_tcp: int | None = 0

    def __add__(self, other: "WireBytes") -> "WireBytes":
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        sums: list[Any] = [None if None in pair else sum(pair) for pair in pairs]
        return WireBytes(*sums)

    def __sub__(self, earlier: "WireBytes") -> "WireBytes":
        """What came since `earlier`, of no request of its own; TCP's bytes are told apart."""
        return WireBytes(
            self.up_headers - earlier.up_headers,
            self.up_body - earlier.up_body,
            self.down_headers - earlier.down_headers,
            self.down_body - earlier.down_body,
            requests=0,
        )


_MORE = {name: UPDATES.c[name] + bindparam(f"more_{name}") for name in ("received_bytes", "requests")}
_COUNTING = update(UPDATES).where(UPDATES.c.id == bindparam("its")).values(_MORE)
# What was counted, by KEY; of a transaction, in its session's `info`.
Counted: TypeAlias = dict[tuple[int, str, TrafficKind], WireBytes]
KEY = ("round", "phone", "kind")
TRAFFIC = "traffic"


class Ledger:
    """The ledger at `place`, a file of SQLite's or a URL of PostgreSQL's; thread-safe.

    It is created if missing and migrated if it is of an earlier release (`migrations`), unless `create` or `migrate` is
    false.

    name: for messages. shared: whether other servers may use it; process: then a random name of this process, else
    None. clock: of all times in it, in seconds since 1970; PostgreSQL's own, or this machine's.
    Every method raises StorageError if the database fails: disk full, file damaged, not a ledger, no connection.
    """

    def __init__(
        self,
        place: Path | str,
        create: bool = True,
        migrate: bool = True,
        clock: Callable[[], float] | None = None,
    ):
        if not create and isinstance(place, Path) and not place.is_file():
            raise StorageError(f"{place}: no ledger found; expected the state folder of a `phonograd serve`")
        self._database = database_at(place)
        self.clock = clock or self._database.clock
        self.name, self.shared = self._database.name, self._database.shared
        self.process = secrets.token_hex(16) if self.shared else None
        self._readers = sessionmaker(self._database.readers, expire_on_commit=False)
        self._writers = sessionmaker(self._database.writers, expire_on_commit=False)
        self._write_lock = threading.Lock()  # the database has one writer; a lock is fairer than its waiting
        self._traffic_lock = threading.Lock()
        self._traffic: Counted = {}
        try:
            with self.errors():
                self._prepare(create, migrate)
                self._database.follow_clock()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close all connections."""
        self._database.close()

    @contextlib.contextmanager
    def reading(self) -> Iterator[Session]:
        """A read-only session on a snapshot of the ledger."""
        with self.errors(), self._readers() as session:
            yield session

    @contextlib.contextmanager
    def writing(self) -> Iterator[Session]:
        """A session whose changes are committed and durable when the block ends, or rolled back if it raises.

        Also writes the traffic counted so far.
        """
        with self.errors(), self._write_lock:
            taken = self._take_traffic()
            try:
                with self._writers.begin() as session:
                    session.info[TRAFFIC] = dict(taken)
                    yield session
                    self._write_traffic(session)
            except BaseException:
                for key, wire in taken.items():
                    self.count(*key, wire)
                raise

    @contextlib.contextmanager
    def closing_lock(self) -> Iterator[bool]:
        """Whether this process, and no other, may close a round while the block runs; see `Database.closing_lock`."""
        with self.errors(), self._database.closing_lock() as mine:
            yield mine

    def follow_clock(self) -> None:
        """Ask a shared ledger's database what time it is; call it about every second."""
        with self.errors():
            self._database.follow_clock()

    def count(self, number: int, phone: str, kind: TrafficKind, wire: WireBytes) -> None:
        """Add bytes on the wire to round `number`; in memory until the next `writing` or `flush`."""
        key = (number, phone, kind)
        with self._traffic_lock:
            known = self._traffic.get(key)
            self._traffic[key] = wire if known is None else known + wire

    def empty_log(self) -> None:
        """Leave nothing of what was deleted on the disk, if nobody reads or writes; see `Database.empty_log`."""
        self._database.empty_log()

    def flush(self) -> None:
        """Write the traffic that is only counted in memory."""
        if self._traffic:
            with self.writing():
                pass

    def _take_traffic(self) -> Counted:
        with self._traffic_lock:
            taken, self._traffic = self._traffic, {}
        return taken

    def _write_traffic(self, session: Session) -> None:
        if counted := session.info[TRAFFIC]:
            rows = [{**dict(zip(KEY, key, strict=True)), **_counters(wire)} for key, wire in counted.items()]
            session.connection().execute(self._database.adding(Traffic, KEY), rows)

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Within the block, what the database fails with is a StorageError, and so is what damaged rows lead to."""
        try:
            yield
        except (DBAPIError, PoolTimeoutError) as error:
            raise self._failure(error) from error
        except (LookupError, TypeError, ValueError, ArithmeticError, InvalidRequestError):
            self.require_sound()
            raise  # a bug

    def require_sound(self) -> None:
        """Raise StorageError if rows are damaged; for errors alone, as it reads all of them."""
        try:
            with self._readers() as session:
                wrong = damage_in(session)
        except (DBAPIError, PoolTimeoutError) as error:
            raise self._failure(error) from error
        if wrong is not None:
            raise StorageError(f"{self.name}: it is damaged, {wrong}: restore it from a backup")

    def _failure(self, error: DBAPIError | PoolTimeoutError) -> StorageError:
        cause = error.orig if isinstance(error, DBAPIError) else error
        return StorageError(f"{self.name}: the ledger failed: {cause}; {cure_of(cause)}")

    def _prepare(self, create: bool, migrate: bool) -> None:
        with self._database.readers.connect() as connection:
            version = migrations.version_of(connection)
        if version == migrations.VERSION:
            return  # without the write lock
        if migrations.FIRST <= version < migrations.VERSION and not migrate:
            raise StorageError(
                f"{self.name}: expected ledger version {migrations.VERSION}, found {version}, which a server's start "
                "migrates; run the version of phonograd that the servers run, or upgrade them first"
            )
        with self._database.writers.begin() as connection:
            migrations.prepare(connection, self.name, create)


@contextlib.contextmanager
def ledger_of(storage: ServerStorage, create: bool = False) -> Iterator[Ledger]:
    """The ledger of `storage`, for a command without a server.

    One that servers share is not migrated: they may be running. Raises StorageError.
    """
    place = storage.ledger / LEDGER if isinstance(storage.ledger, Path) else storage.ledger
    with contextlib.closing(Ledger(place, create, migrate=isinstance(place, Path))) as ledger:
        yield ledger


def add_traffic(session: Session, number: int, phone: str, kind: TrafficKind, wire: WireBytes) -> None:
    """Add bytes to a round's and phone's traffic, within the caller's transaction of `Ledger.writing`."""
    counted: Counted = session.info[TRAFFIC]
    counted[number, phone, kind] = counted.get((number, phone, kind), WireBytes(requests=0)) + wire


def _counters(wire: WireBytes) -> dict[str, int | None]:
    return {
        "requests": wire.requests,
        "up_header_bytes": wire.up_headers,
        "up_body_bytes": wire.up_body,
        "down_header_bytes": wire.down_headers,
        "down_body_bytes": wire.down_body,
        "up_tcp_bytes": wire.up_tcp,
        "down_tcp_bytes": wire.down_tcp,
    }


def count_request(session: Session, row: Any, nbytes: int, requests: int = 1) -> None:
    """Count a request with `nbytes` of an update in the ledger's row of it and in the traffic, in one transaction.

    So both always agree, even after a crash. row: the update, as it was read.
    """
    session.execute(_COUNTING, {"its": row.id, "more_received_bytes": nbytes, "more_requests": requests})
    add_traffic(session, row.round, row.phone, "upload", WireBytes(up_body=nbytes, requests=0))
