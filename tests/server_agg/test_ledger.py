"""The ledger by itself: snapshots, what the database holds, its versions, and the same work however long it is."""

import contextlib
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import insert

from phonograd.device_runtime.base.errors import StorageError
from phonograd.server_agg.refusals import StaleUpdateError
from phonograd.server_agg.rounds import opening
from phonograd.server_agg.rounds.uploads import MOST_REFUSALS, UploadMetadata
from phonograd.server_agg.storage import migrations, queries
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.migrations import FIRST, VERSION, VERSION_TABLE
from phonograd.server_agg.storage.tables import Selected
from tests.server_agg.coordinators import open_coordinator
from tests.server_agg.ledgers import FEW, LEDGER_CHECKS, MANY, a_ledger, add_history, count_steps
from tests.server_agg.workshop import Workshop, settings_with


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with contextlib.closing(a_ledger(tmp_path / "ledger.sqlite")) as ledger:
        yield ledger


@pytest.mark.parametrize("check", LEDGER_CHECKS)
def test_what_every_ledger_holds(check: Callable[[Ledger], None], ledger: Ledger) -> None:
    check(ledger)


def steps_of_an_upload(workshop: Workshop, state: Path, updates: int) -> int:
    update = workshop.update(1)
    metadata = UploadMetadata("phone1", update.stat().st_size, "0" * 64, workshop.base_sha256, 1)
    settings = settings_with(clients_per_round=2, max_clients=3)
    with open_coordinator(workshop, state, settings) as coordinator:
        add_history(coordinator, updates)
        with count_steps(coordinator) as steps:
            assert coordinator.participation("phone1") is None
            record = coordinator.create_upload(metadata)
            path = coordinator.folder.upload(record.id)
            path.write_bytes(update.read_bytes())
            coordinator.ingest(record.id, "0" * 64, update.stat().st_size)
            assert coordinator.participation("phone1") is not None
    return steps[0]


def test_an_upload_costs_no_more_in_a_ledger_with_a_long_history(workshop: Workshop, tmp_path: Path) -> None:
    few, many = (steps_of_an_upload(workshop, tmp_path / f"{n}", n) for n in (FEW, MANY))
    assert 0 < many < 1.2 * few


def test_closing_a_round_reads_no_update_of_earlier_ones(workshop: Workshop, tmp_path: Path) -> None:
    steps = []
    for updates in (FEW, MANY):
        settings = settings_with(clients_per_round=2)
        with open_coordinator(workshop, tmp_path / f"{updates}", settings) as coordinator:
            add_history(coordinator, updates)
            with count_steps(coordinator) as counted:
                coordinator.round.load()
        steps.append(counted[0])
    assert 0 < steps[1] < 1.2 * steps[0]


def test_whether_a_phone_was_sampled_is_looked_up(workshop: Workshop, tmp_path: Path) -> None:
    steps = []
    for sampled in (FEW, MANY):
        with open_coordinator(workshop, tmp_path / f"{sampled}", settings_with()) as one:
            with one.ledger.writing() as session:
                session.execute(insert(Selected), [{"round": 1, "phone": f"phone{n}"} for n in range(sampled)])
            with count_steps(one) as counted, one.ledger.reading() as session:
                assert queries.is_selected(session, 1, "phone1")
                assert not queries.is_selected(session, 1, f"phone{sampled}")
        steps.append(counted[0])
    assert 0 < steps[1] < 1.2 * steps[0]


def test_a_phone_that_is_refused_over_and_over_costs_no_more(workshop: Workshop, tmp_path: Path) -> None:
    with open_coordinator(workshop, tmp_path / "state", settings_with()) as coordinator:
        steps = []

        def announce(times: int, first: int) -> None:
            for number in range(first, first + times):
                with pytest.raises(StaleUpdateError):
                    coordinator.create_upload(UploadMetadata("phone1", 10, f"{number:064x}", "f" * 64))

        announce(MOST_REFUSALS, 0)
        for first in (MOST_REFUSALS, MOST_REFUSALS + 100):
            with count_steps(coordinator) as counted:
                announce(100, first)
            steps.append(counted[0])
        assert 0 < steps[1] < 1.2 * steps[0]
        with coordinator.ledger.reading() as session:
            assert len(queries.refused_unsent(session, 1, "phone1", 1000)) == MOST_REFUSALS
        coordinator.rollback(0)
        announce(1, 0)  # another round, which has refused nothing yet
        with coordinator.ledger.writing() as session:
            opening.add_round(session, 0.0, opening.REFUSALS_KEPT + 1, workshop.base_sha256, coordinator.settings)
            kept = [len(queries.refused_unsent(session, number, "phone1", 1000)) for number in (1, 2)]
        assert kept == [0, 1]


def test_announcing_an_update_looks_at_no_other_upload(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_coordinator(workshop, tmp_path / "state", settings_with()) as coordinator:
        for number in range(5):
            record = coordinator.create_upload(UploadMetadata(f"phone{number}", 1000))
            coordinator.uploads.count_received(record.id, 100 * number)
        with coordinator.ledger.reading() as session:
            assert queries.pending_bytes(session) == 1000 + 900 + 800 + 700 + 600
        looked: list[int] = []
        stored = coordinator.uploads.bytes.stored_bytes
        monkeypatch.setattr(
            coordinator.uploads.bytes,
            "stored_bytes",
            lambda session, rows: looked.append(len(rows)) or stored(session, rows),
        )
        coordinator.create_upload(UploadMetadata("phone9", 1000))
        assert looked == []


NEXT = f"""
import sqlalchemy as sa
from alembic import op

revision, down_revision = "{VERSION + 1}", "{VERSION}"


def upgrade():
    op.add_column("models", sa.Column("more", sa.String))
"""


def versions(path: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(path)) as ledger:
        return [version for (version,) in ledger.execute(f"SELECT version_num FROM {VERSION_TABLE}")]


def schema(path: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(path)) as ledger:
        return [str(row) for row in ledger.execute("SELECT name, sql FROM sqlite_master ORDER BY name")]


@pytest.fixture
def todays(tmp_path: Path) -> Path:
    """One of today's version."""
    path = tmp_path / "ledger.sqlite"
    Ledger(path).close()
    return path


def test_the_next_release_migrates_a_ledger_of_this_one(
    todays: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert versions(todays) == [str(VERSION)]
    revisions = Path(shutil.copytree(migrations.REVISIONS, tmp_path / "revisions"))
    (revisions / "versions" / "next.py").write_text(NEXT)
    monkeypatch.setattr(migrations, "REVISIONS", revisions)
    monkeypatch.setattr(migrations, "VERSION", VERSION + 1)
    with pytest.raises(StorageError, match=f"version {VERSION + 1}, found {VERSION}, which a server's start migrates"):
        Ledger(todays, migrate=False)
    assert versions(todays) == [str(VERSION)]
    Ledger(todays).close()
    assert versions(todays) == [str(VERSION + 1)]
    with contextlib.closing(sqlite3.connect(todays)) as found:
        assert found.execute("SELECT more FROM models").fetchall() == []


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (
            VERSION + 1,
            f"expected ledger version {VERSION} or earlier, found {VERSION + 1}, written by a newer phonograd",
        ),
        (FIRST - 1, f"found version {FIRST - 1}, made by a phonograd from before the first release; choose an empty"),
    ],
)
def test_a_ledger_of_an_unknown_version_is_refused_unchanged(version: int, message: str, todays: Path) -> None:
    with contextlib.closing(sqlite3.connect(todays)) as found:
        found.execute(f"UPDATE {VERSION_TABLE} SET version_num = '{version}'")
        found.commit()
    before = schema(todays)
    for migrate in (True, False):
        with pytest.raises(StorageError, match=message):
            Ledger(todays, migrate=migrate)
    assert (schema(todays), versions(todays)) == (before, [str(version)])


def test_a_ledger_without_a_version_is_refused_unchanged(todays: Path) -> None:
    with contextlib.closing(sqlite3.connect(todays)) as found:
        found.execute(f"DROP TABLE {VERSION_TABLE}")
    before = schema(todays)
    with pytest.raises(StorageError, match="found version 1, made by a phonograd from before the first release"):
        Ledger(todays)
    assert schema(todays) == before


def test_a_file_that_is_no_ledger_is_refused_where_none_may_be_made(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "ledger.sqlite").close()
    with pytest.raises(StorageError, match="expected a ledger, found none in it"):
        Ledger(tmp_path / "ledger.sqlite", create=False)
