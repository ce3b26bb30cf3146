"""The ledger in PostgreSQL does what it does in SQLite."""

import contextlib
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import func, select, text

from phonograd.device_runtime.base.documents import document_of
from phonograd.device_runtime.base.errors import StorageError
from phonograd.server_agg.report.document import report_of
from phonograd.server_agg.security.registry import PhoneRegistry, Principal
from phonograd.server_agg.storage.audit import AuditLog
from phonograd.server_agg.storage.ledger import Ledger, WireBytes
from phonograd.server_agg.storage.migrations import VERSION, VERSION_TABLE
from phonograd.server_agg.storage.quality import all_quality, report_quality
from phonograd.server_agg.storage.tables import Base, Traffic, Update
from tests.cluster.conftest import administrator, break_the_lock
from tests.cluster.pooler import pooler_before
from tests.server_agg.ledger_changes import check_a_history
from tests.server_agg.ledgers import LEDGER_CHECKS, a_ledger, an_update

pytestmark = pytest.mark.cluster


@pytest.fixture
def ledger(database: str) -> Iterator[Ledger]:
    with contextlib.closing(a_ledger(database)) as ledger:
        yield ledger


@pytest.mark.parametrize("check", LEDGER_CHECKS)
def test_what_every_ledger_holds(check: Callable[[Ledger], None], ledger: Ledger) -> None:
    check(ledger)


def test_servers_that_start_together_make_the_tables_once(database: str) -> None:
    with ThreadPoolExecutor(3) as pool:
        for ledger in list(pool.map(Ledger, [database] * 3)):
            ledger.close()
    with administrator(database) as connection:
        assert connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}")) == str(VERSION)
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        assert compare_metadata(context, Base.metadata) == []


@pytest.mark.parametrize("seed", range(2))
def test_sums_are_those_of_the_rows_whatever_happens_to_them(ledger: Ledger, seed: int) -> None:
    check_a_history(ledger, Random(seed))


def test_a_ledger_of_a_newer_release_is_refused_and_its_password_not_shown(database: str) -> None:
    Ledger(database).close()
    with administrator(database) as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '{VERSION + 1}'"))
    with pytest.raises(StorageError, match=rf"\*\*\*.*found {VERSION + 1}, written by a newer phonograd") as refused:
        Ledger(database.replace("phonograd@", "phonograd:secret@"))
    assert "secret" not in str(refused.value)


def test_writers_take_turns(ledger: Ledger, database: str) -> None:
    count, order = select(func.count()).select_from(Update), []
    other = Ledger(database)
    entered, leave = threading.Event(), threading.Event()

    def second() -> None:
        entered.set()
        with other.writing() as session:
            order.append(session.scalar(count))

    with ThreadPoolExecutor(1) as pool:
        with ledger.writing() as session:
            assert session.scalar(count) == 0  # a transaction begins with its first statement
            waits = pool.submit(second)
            entered.wait()
            leave.wait(0.2)  # a chance for the second one to be wrong
            session.add(an_update("y", "rejected"))
        waits.result()
    other.close()
    assert order == [1]


def test_sums_are_whole_numbers_past_32_bits(ledger: Ledger) -> None:
    for _ in range(2):
        ledger.count(1, "a", "upload", WireBytes(1 << 40, 2, 3, 4, up_tcp=1 << 40))
        ledger.flush()
    with ledger.writing() as session:
        update = an_update("x", "accepted")
        update.length = update.received_bytes = 1 << 40
        update.base_sha256, update.codec = "a" * 64, "full-f32"
        session.add(update)
    report = document_of(report_of(ledger))
    (entry,) = report["rounds"]
    assert (entry["up_header_bytes"], entry["useful_bytes"]) == (1 << 41, 1 << 40)
    assert isinstance(entry["useful_bytes"], int)
    assert [entry[f"phone_up_{name}_bytes"] for name in ("p50", "p90", "max")] == [(1 << 41) + 4] * 3
    assert (entry["up_tcp_bytes"], entry["down_tcp_bytes"]) == (1 << 41, 0)
    ledger.count(1, "b", "upload", WireBytes(up_tcp=None))
    ledger.flush()
    (entry,) = document_of(report_of(ledger))["rounds"]
    assert (entry["up_tcp_bytes"], entry["down_tcp_bytes"]) == (None, 0)


def test_connections_that_cannot_write_are_thrown_away(ledger: Ledger, database: str) -> None:
    """PostgreSQL after a failover: let them write no more, while it lets new ones."""
    name = database.rpartition("/")[2]

    def write(update: str) -> None:
        with ledger.writing() as session:
            session.add(an_update(update, "late"))

    with administrator(database) as connection:
        connection.execute(text(f"ALTER DATABASE {name} SET default_transaction_read_only = on"))
        ledger.close()  # the pool's connections are of before
        with ledger.reading() as one, ledger.reading() as two:
            assert [session.scalar(select(func.count()).select_from(Update)) for session in (one, two)] == [0, 0]
        connection.execute(text(f"ALTER DATABASE {name} RESET default_transaction_read_only"))
    with pytest.raises(StorageError, match=r"read-only transaction.*; see that it is PostgreSQL's primary"):
        write("x")
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, "yz"))


def test_tokens_quality_and_the_audit_log(ledger: Ledger) -> None:
    registry, audit = PhoneRegistry(ledger), AuditLog(ledger, kept=1)
    issued = registry.add("phone1", "phone", "90d", "operator:me")
    assert registry.authenticate(issued.token) == Principal("phone1", "phone")
    for value in (2.0, 1.0):
        assert report_quality(ledger, "a" * 64, "perplexity", value, "me") is not None
    with ledger.reading() as session:
        assert all_quality(session)["a" * 64] == {"perplexity": 1.0}
    audit.record_refusal("a", "GET", "/", "no")
    audit.record_refusal("b", "GET", "/", "no")
    assert [entry.actor for entry in audit.entries()] == ["b", "me", "me", "operator:me"]


def test_a_closing_lock_is_one_process_s_and_dies_with_its_connection(ledger: Ledger, database: str) -> None:
    other = Ledger(database)
    with ledger.closing_lock() as mine:
        with other.closing_lock() as theirs:
            assert (mine, theirs) == (True, False)
        break_the_lock(database)
        with other.closing_lock() as theirs:
            assert theirs
    with ledger.closing_lock() as mine:
        assert mine
    other.close()


@pytest.fixture
def pooler(database: str) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder, pooler_before(database, Path(folder)) as url:
        yield url


def test_a_closing_lock_is_one_process_s_behind_a_pooler(pooler: str) -> None:
    """A lock of the connection would be the other's too, and stay with the pooler's connection."""
    with contextlib.closing(Ledger(pooler)) as ledger, contextlib.closing(Ledger(pooler)) as other:
        for _ in range(3):
            with ledger.closing_lock() as mine, other.closing_lock() as theirs:
                assert (mine, theirs) == (True, False)
            with other.closing_lock() as theirs, ledger.closing_lock() as mine:
                assert (mine, theirs) == (False, True)


def test_statements_repeated_behind_a_pooler(ledger: Ledger, pooler: str) -> None:
    """The connections that a pooler gives know no statement that was prepared on another one."""
    del ledger  # it has made a round
    with contextlib.closing(Ledger(pooler)) as first, contextlib.closing(Ledger(pooler)) as second:
        for number in range(1, 6):
            for one in (first, second):
                one.count(1, "a", "upload", WireBytes(1))
                one.follow_clock()
                one.flush()
                with one.writing() as session:
                    sums = {session.scalar(select(func.sum(Traffic.up_header_bytes))) for _ in range(10)}
            assert sums == {2 * number}
