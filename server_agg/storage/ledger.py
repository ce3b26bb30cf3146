"""The ledger: models, rounds, and every byte that came or went, in SQLite.

Write-ahead log with synchronous=FULL: a committed row survives a power cut, and a report reads while an upload is
being written. What must be true together is written in one transaction: a round's end, its model and the next round.
"""

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, create_engine, event, func, select, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import ConnectionPoolEntry

import server_agg.security.tables  # noqa: F401  (its tables are made with the others)
from device_runtime.errors import StorageError
from server_agg.storage.tables import SCHEMA_VERSION, Base, Download, Model, Round, Upload, UploadState


@dataclass(frozen=True)
class Transfer:
    """What one upload cost: body and header bytes received, seconds from the first byte to the last."""

    body_bytes: int
    header_bytes: int
    seconds: float


class Ledger:
    """The ledger at `path`, made if it is not there (unless `create` is false); safe to use from several threads.

    Every method raises StorageError if SQLite refuses: disk full, file damaged, not a ledger.
    """

    def __init__(self, path: Path, create: bool = True, clock: Callable[[], float] = time.time):
        if not create and not path.is_file():
            raise StorageError(f"{path}: no ledger here; expected a state folder that `phonograd serve` has written")
        self.path = path
        self._clock = clock
        self._engine = _connect(path)
        self._sessions = sessionmaker(self._engine, expire_on_commit=False)
        self._write_lock = threading.Lock()  # SQLite has one writer; waiting here is surer than its busy timeout
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
        with self._errors(), self._sessions() as session:
            yield session

    def open_round(self) -> Round | None:
        """The round that is open; None in a new ledger."""
        with self.reading() as session:
            return session.scalars(select(Round).where(Round.closed_at.is_(None))).one_or_none()

    def model(self, sha256: str) -> Model | None:
        """A model by hash."""
        with self.reading() as session:
            return session.get(Model, sha256)

    def models(self) -> list[Model]:
        """All models, oldest first."""
        with self.reading() as session:
            return list(session.scalars(select(Model).order_by(Model.round)))

    def round_numbered(self, number: int) -> Round | None:
        """A round by number."""
        with self.reading() as session:
            return session.get(Round, number)

    def accepted(self, number: int) -> list[Upload]:
        """The accepted uploads of a round, in the order of their acceptance."""
        with self.reading() as session:
            wanted = select(Upload).where(Upload.round == number, Upload.state == "accepted").order_by(Upload.id)
            return list(session.scalars(wanted))

    def start(self, model: Model, first: Round) -> None:
        """Begin: the exported model and the first round."""
        with self._writing() as session:
            session.add(model)
            session.flush()  # the round refers to it
            session.add(first)

    def new_model(self, sha256: str, made_by: int, parent_sha256: str | None, nbytes: int) -> Model:
        """A row for a model, stamped now, not yet written."""
        return Model(sha256=sha256, round=made_by, parent_sha256=parent_sha256, bytes=nbytes, created_at=self._clock())

    def new_round(self, number: int, base_sha256: str, clients_per_round: int, weighting: str) -> Round:
        """A row for an open round, stamped now, not yet written."""
        return Round(
            number=number,
            base_sha256=base_sha256,
            clients_per_round=clients_per_round,
            weighting=weighting,
            opened_at=self._clock(),
        )

    def change_round(self, number: int, clients_per_round: int, weighting: str) -> None:
        """Give a round that has no upload yet other settings."""
        with self._writing() as session:
            row = session.get_one(Round, number)
            row.clients_per_round, row.weighting = clients_per_round, weighting

    def close_round(self, number: int, result: Model, following: Round) -> None:
        """In one transaction: the round is over, its model exists, the next round is open."""
        with self._writing() as session:
            session.add(result)
            session.flush()
            row = session.get_one(Round, number)
            row.result_sha256, row.closed_at = result.sha256, self._clock()
            session.flush()
            session.add(following)

    def add_upload(
        self,
        number: int,
        state: UploadState,
        transfer: Transfer,
        *,
        phone: str | None = None,
        sha256: str | None = None,
        codec: str | None = None,
        tokens: int | None = None,
        weight: int | None = None,
        reason: str | None = None,
    ) -> None:
        """Write down an upload to round `number`, and what became of it."""
        with self._writing() as session:
            session.add(
                Upload(
                    round=number,
                    phone=phone,
                    sha256=sha256,
                    codec=codec,
                    tokens=tokens,
                    weight=weight,
                    body_bytes=transfer.body_bytes,
                    header_bytes=transfer.header_bytes,
                    seconds=transfer.seconds,
                    state=state,
                    reason=reason,
                    received_at=self._clock(),
                )
            )

    def add_download(self, number: int, sha256: str, phone: str | None, nbytes: int) -> None:
        """Write down that `nbytes` of a model were sent during round `number`."""
        with self._writing() as session:
            session.add(Download(round=number, sha256=sha256, phone=phone, bytes=nbytes, sent_at=self._clock()))

    def count_accepted(self, number: int) -> int:
        """How many updates a round has accepted."""
        with self.reading() as session:
            wanted = select(func.count()).where(Upload.round == number, Upload.state == "accepted")
            return session.scalar(wanted) or 0

    @contextlib.contextmanager
    def _writing(self) -> Iterator[Session]:
        with self._errors(), self._write_lock, self._sessions.begin() as session:
            session.connection(execution_options={"immediate": True})
            yield session

    writing = _writing

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
            found = connection.scalar(text("PRAGMA user_version"))
        if found == 0 and create:
            Base.metadata.create_all(self._engine)
            with self._engine.begin() as connection:
                connection.execute(text(f"PRAGMA user_version = {SCHEMA_VERSION}"))
        elif found != SCHEMA_VERSION:
            raise StorageError(
                f"{self.path}: ledger version {SCHEMA_VERSION} expected, found {found}; "
                "use the version of phonograd that wrote it, or an empty --state folder"
            )


def _connect(path: Path) -> Engine:
    engine = create_engine(URL.create("sqlite", database=str(path)))

    @event.listens_for(engine, "connect")
    def configure(connection: DBAPIConnection, entry: ConnectionPoolEntry) -> None:
        del entry
        assert isinstance(connection, sqlite3.Connection)
        connection.isolation_level = (
            None  # else sqlite3 begins transactions at the first write, and reads see no snapshot
        )
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(
            "BEGIN IMMEDIATE" if connection.get_execution_options().get("immediate") else "BEGIN"
        )

    return engine
