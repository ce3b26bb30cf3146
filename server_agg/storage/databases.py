"""The database of a ledger: SQLite in the state folder, or PostgreSQL at a URL. No other module knows which it is.

Both have one writer at a time, as of the beginning of its transaction, so that what a transaction has read stays true
until it ends: SQLite by BEGIN IMMEDIATE, PostgreSQL by an advisory lock. Readers see a snapshot.
"""

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

from sqlalchemy import URL, Connection, Engine, ExceptionContext, create_engine, event, func, make_url, select, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.orm import DeclarativeBase, Session
from sqlalchemy.pool import ConnectionPoolEntry

from phonograd.device_runtime.base.errors import MissingExtraError, StorageError, how_to_install

# Another process may write too (`phonograd tokens`); waiting for it fails after this long.
BUSY_SECONDS = 30.0
INSERTS: Mapping[str, Callable[[type[DeclarativeBase]], Any]] = {
    "sqlite": sqlite.insert,
    "postgresql": postgresql.insert,
}
# Of one server to PostgreSQL, which takes 100 of all unless it is told otherwise.
CONNECTIONS = 30
# PostgreSQL's advisory locks, each a number of the database's own.
WRITING, CLOSING = 70671, 70672

READ_ONLY = "25006"  # PostgreSQL's code for a transaction that may not write
# What helps against an error of either database, by words in its message.
CURES: tuple[tuple[tuple[str, ...], str], ...] = (
    (("is full", "No space left"), "free disk space"),
    (("QueuePool", "slots"), "it has no connection left; try again later"),
    (("read-only",), "see that it is PostgreSQL's primary; new connections follow"),
    (("connect",), "see that PostgreSQL runs and can be reached"),
    (("malformed", "not a database", "no such", "does not exist"), "it is damaged: restore it from a backup"),
    (("readonly", "unable to open", "permission"), "let this user write there"),
    (("locked",), "end the program that writes to it, or wait for that"),
    (("I/O error",), "see to its disk, or restore it from a backup"),
)


def cure_of(error: object) -> str:
    """What helps against a database's error."""
    message = str(error)
    return next((cure for words, cure in CURES if any(word in message for word in words)), "try again later")


class SharedClock:
    """Seconds since 1970 by the database's clock, for servers whose own clocks may differ.

    Between two calls of `follow` this machine's monotonic clock goes on.
    """

    def __init__(self) -> None:
        self._ahead = 0.0  # of the monotonic clock

    def __call__(self) -> float:
        """The time now."""
        return time.monotonic() + self._ahead

    def follow(self, database: Engine) -> None:
        """Ask the database."""
        with database.connect() as connection:
            told = connection.execute(select(func.extract("epoch", func.clock_timestamp()))).scalar_one()
        self._ahead = float(told) - time.monotonic()


@dataclass(frozen=True)
class Database:
    """readers, writers: the engine for either kind of transaction. name: for messages, without a password. clock: of
    the rows, in seconds since 1970; if several servers may use the database, its own.
    """

    readers: Engine
    writers: Engine
    name: str
    clock: Callable[[], float]

    @property
    def shared(self) -> bool:
        """Whether several servers may use it."""
        return isinstance(self.clock, SharedClock)

    def follow_clock(self) -> None:
        """Ask a shared database what time it is."""
        if isinstance(self.clock, SharedClock):
            self.clock.follow(self.readers)

    def adding(self, table: type[DeclarativeBase], key: Sequence[str]) -> Any:
        """The statement that inserts a row, or adds its numbers to those of the row with this primary key."""
        return _adding(self.writers.dialect.name, table, tuple(key))

    def close(self) -> None:
        """Close all connections."""
        self.writers.dispose()

    def empty_log(self) -> None:
        """Empty SQLite's write-ahead log, which still has what was deleted; not while somebody reads or writes."""
        if not self.shared:
            with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(self.name, timeout=0)) as own:
                own.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    @contextlib.contextmanager
    def closing_lock(self) -> Iterator[bool]:
        """Whether this process, and no other, may close a round while the block runs.

        A process that dies gives the lock back, as PostgreSQL holds it for the transaction. Not for the connection: a
        pooler such as PgBouncer gives each transaction another one.
        """
        if not self.shared:
            yield True  # the state folder is locked
            return
        with self.writers.execution_options(immediate=False).connect() as connection:
            connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
            mine = connection.scalar(select(func.pg_try_advisory_xact_lock(CLOSING)))
            try:
                yield bool(mine)
            finally:
                with contextlib.suppress(DBAPIError):  # a broken connection has no lock any more
                    connection.rollback()


def database_at(place: Path | str) -> Database:
    """place: a file of SQLite's, or the URL of a database of PostgreSQL's.

    Raises StorageError for another URL, MissingExtraError without psycopg.
    """
    if isinstance(place, Path):
        return _sqlite(place)
    try:
        url = make_url(place)
    except ArgumentError:
        url = None
    if url is None or url.get_backend_name() != "postgresql":
        shown = place if url is None else url.render_as_string()
        raise StorageError(
            f"ledger {shown}: expected postgresql://USER@HOST/DATABASE; without `ledger` it is in the state folder"
        )
    try:
        return _postgresql(url.set(drivername="postgresql+psycopg"))
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"a ledger in PostgreSQL needs psycopg; {how_to_install('postgres')}") from error


def upsert(session: Session, table: type[DeclarativeBase], key: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Insert a row, or give the one with this primary key these values."""
    row = INSERTS[session.get_bind().dialect.name](table).values(**key, **values)
    session.execute(row.on_conflict_do_update(index_elements=list(key), set_=dict(values)))


@cache  # to write it takes longer than to run it
def _adding(dialect: str, table: type[DeclarativeBase], key: tuple[str, ...]) -> Any:
    row = INSERTS[dialect](cast(Any, table.__table__))
    numbers = [column for column in table.__table__.columns if column.name not in key]
    return row.on_conflict_do_update(
        index_elements=key, set_={column.name: column + row.excluded[column.name] for column in numbers}
    )


def add_trigger(connection: Connection, table: str, event: str, body: str) -> None:
    """Have the database run `body`, statements with a semicolon after each, for every row of a table, in the same
    transaction: after an INSERT of NEW, an UPDATE of OLD to NEW, or a DELETE of OLD.
    """
    name = f"{table}_{event.lower()}_counted"
    when = f"CREATE TRIGGER {name} AFTER {event} ON {table} FOR EACH ROW"
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(f"{when} BEGIN {body} END")
        return
    function = f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN {body} RETURN NULL; END$$"
    connection.exec_driver_sql(function)
    connection.exec_driver_sql(f"{when} EXECUTE FUNCTION {name}()")


def _sqlite(path: Path) -> Database:
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
        # Builds of SQLite differ in whether they overwrite what is deleted.
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "secure_delete=ON"):
            connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A writer locks at once: after a read, another process could have made its snapshot stale.
        immediate = connection.get_execution_options().get("immediate")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")

    return Database(engine, engine.execution_options(immediate=True), str(path), time.time)


def _postgresql(url: URL) -> Database:
    # A connection that broke while it was idle, as when PostgreSQL restarted, is replaced. Statements are not prepared:
    # behind a pooler the next transaction's connection would not know them.
    engine = create_engine(
        url,
        pool_size=CONNECTIONS // 3,
        max_overflow=CONNECTIONS * 2 // 3,
        pool_pre_ping=True,
        connect_args={"prepare_threshold": None},
    )

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        if connection.get_execution_options().get("immediate"):
            connection.execute(select(func.pg_advisory_xact_lock(WRITING)))

    @event.listens_for(engine, "handle_error")
    def replace(context: ExceptionContext) -> None:
        # After a failover the pool would stay on what no longer writes.
        if getattr(context.original_exception, "sqlstate", None) == READ_ONLY:
            context.is_disconnect = True

    snapshots = engine.execution_options(isolation_level="REPEATABLE READ")
    return Database(snapshots, engine.execution_options(immediate=True), url.render_as_string(), SharedClock())
