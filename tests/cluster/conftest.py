"""PostgreSQL, started once for all tests that run in this process, with a database for each test."""

import itertools
from collections.abc import Iterator

import pytest
from sqlalchemy import create_engine, text

from examples.cluster.services import postgresql

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def database_server() -> Iterator[str]:
    with postgresql() as url:
        yield url


@pytest.fixture
def database(database_server: str) -> str:
    """The URL of a new, empty database."""
    name = f"test{next(_NUMBERS)}"
    engine = create_engine(database_server.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return database_server.replace("/postgres", f"/{name}")
