"""PostgreSQL, started once for all tests of this process, with a database for each test; servers that share it."""

import contextlib
import itertools
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection as SQLConnection
from sqlalchemy import create_engine, text

from examples.cluster.services import BUCKET, postgresql, s3
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.storage.stores import ObjectStore
from tests.server_agg.workshop import Workshop, settings_with, small_workshop
from tests.support.command_line import phono
from tests.support.waiting import until

__all__ = ["phono"]

Open = Callable[..., list[Coordinator]]
_NUMBERS = itertools.count(1)


@contextlib.contextmanager
def administrator(database: str) -> Iterator[SQLConnection]:
    """PostgreSQL itself."""
    engine = create_engine(database.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        yield connection
    engine.dispose()


def break_the_lock(database: str) -> None:
    """End the connection that holds the lock of closing a round, and wait until PostgreSQL has done so."""
    kill = "SELECT pid, pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted"
    with administrator(database) as connection:
        [(process, _)] = connection.execute(text(kill)).all()
        there = text(f"SELECT 1 FROM pg_stat_activity WHERE pid = {process}")
        until(lambda: not connection.execute(there).all(), "the end of a connection")


@pytest.fixture(scope="session")
def database_server() -> Iterator[str]:
    with postgresql() as url:
        with administrator(url) as connection:  # else it cleans up after each test, in each database
            connection.execute(text("ALTER SYSTEM SET autovacuum = off"))
            connection.execute(text("ALTER SYSTEM SET fsync = off"))
            connection.execute(text("SELECT pg_reload_conf()"))
        yield url


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Environment variables that lead to an S3: one for the process, as s3fs keeps its first connection."""
    with s3(tmp_path_factory.mktemp("s3")) as environment:
        yield environment


@pytest.fixture
def bucket(s3_server: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a new, empty folder in S3."""
    for name, value in s3_server.items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/service{next(_NUMBERS)}"


@pytest.fixture
def database(database_server: str) -> str:
    """The URL of a new, empty database."""
    name = f"test{next(_NUMBERS)}"
    with administrator(database_server) as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    return database_server.replace("/postgres", f"/{name}")


@pytest.fixture(autouse=True)
def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """fsspec's memory store hands the same open file to all who read it at a time."""
    do, lock = ObjectStore._do, threading.RLock()

    def lock_and_do(store: ObjectStore, *arguments: Any) -> Any:
        with lock:
            return do(store, *arguments)

    monkeypatch.setattr(ObjectStore, "_do", lock_and_do)


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return small_workshop(tmp_path)


@pytest.fixture
def place(database: str) -> dict[str, object]:
    """The settings that the servers of one service share."""
    return {"ledger": database, "store": f"memory://{uuid.uuid4().hex}"}


@pytest.fixture
def replicas(workshop: Workshop, tmp_path: Path, place: dict[str, object]) -> Iterator[Open]:
    with contextlib.ExitStack() as stack:
        states = (tmp_path / f"replica{index}" for index in itertools.count())

        def start(number: int, **changes: object) -> list[Coordinator]:
            settings = settings_with(**place, **{"clients_per_round": 3} | changes)

            def one(state: Path) -> Coordinator:
                return Coordinator(workshop.artifacts, state, settings)

            with ThreadPoolExecutor(number) as pool:
                started = list(pool.map(one, itertools.islice(states, number)))
            for coordinator in started:
                stack.callback(coordinator.close)
            return started

        yield start
