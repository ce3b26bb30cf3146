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
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.rounds.uploads import MOST_REFUSALS, UploadMetadata
from phonograd.server_agg.storage import migrations, queries
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.migrations import FIRST, VERSION, VERSION_TABLE
from phonograd.server_agg.storage.tables import Selected
from tests.server_agg.coordinators import open_coordinator
from tests.server_agg.ledgers import LEDGER_CHECKS, a_ledger, add_history, check_that_size_costs_nothing, count_steps
from tests.server_agg.workshop import Workshop, settings_with


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with contextlib.closing(a_ledger(tmp_path / "ledger.sqlite")) as ledger:
        yield ledger


@pytest.mark.parametrize("check", LEDGER_CHECKS)
def test_what_every_ledger_holds(check: Callable[[Ledger], None], ledger: Ledger) -> None:
    check(ledger)


def test_an_upload_costs_no_more_in_a_ledger_with_a_long_history(workshop: Workshop, tmp_path: Path) -> None:
    update = workshop.update(1)
    metadata = UploadMetadata("phone1", update.stat().st_size, "0" * 64, workshop.base_sha256, 1)

    def take_an_upload(coordinator: Coordinator) -> None:
        assert coordinator.participation("phone1") is None
        record = coordinator.create_upload(metadata)
        coordinator.folder.upload(record.id).write_bytes(update.read_bytes())
        coordinator.ingest(record.id, "0" * 64, update.stat().st_size)
        assert coordinator.participation("phone1") is not None

    check_that_size_costs_nothing(workshop, tmp_path, add_history, take_an_upload)


def test_closing_a_round_reads_no_update_of_earlier_ones(workshop: Workshop, tmp_path: Path) -> None:
    check_that_size_costs_nothing(workshop, tmp_path, add_history, lambda one: one.round.load())


def test_whether_a_phone_was_sampled_is_looked_up(workshop: Workshop, tmp_path: Path) -> None:
    def sample(coordinator: Coordinator, phones: int) -> None:
        with coordinator.ledger.writing() as session:
            session.execute(insert(Selected), [{"round": 1, "phone": f"phone{n}"} for n in range(phones)])

    def look_up(coordinator: Coordinator) -> None:
        with coordinator.ledger.reading() as session:
            assert queries.is_selected(session, 1, "phone1")
            assert not queries.is_selected(session, 1, "stranger")

    check_that_size_costs_nothing(workshop, tmp_path, sample, look_up)


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
        stored_bytes = coordinator.uploads.bytes.stored_bytes
        monkeypatch.setattr(
            coordinator.uploads.bytes,
            "stored_bytes",
            lambda session, rows: looked.append(len(rows)) or stored_bytes(session, rows),
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


def rows_of(path: Path, query: str) -> list[tuple[str, ...]]:
    with contextlib.closing(sqlite3.connect(path)) as ledger:
        return ledger.execute(query).fetchall()


def version(path: Path) -> str:
    ((found,),) = rows_of(path, f"SELECT version_num FROM {VERSION_TABLE}")
    return found


def sqlite_dump(path: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(path)) as ledger:
        return list(ledger.iterdump())


@pytest.fixture
def todays(tmp_path: Path) -> Path:
    """A ledger of today's version."""
    path = tmp_path / "ledger.sqlite"
    Ledger(path).close()
    return path


def test_the_next_release_migrates_a_ledger_of_this_one(
    todays: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert version(todays) == str(VERSION)
    revisions = Path(shutil.copytree(migrations.REVISIONS, tmp_path / "revisions"))
    (revisions / "versions" / "next.py").write_text(NEXT)
    monkeypatch.setattr(migrations, "REVISIONS", revisions)
    monkeypatch.setattr(migrations, "VERSION", VERSION + 1)
    with pytest.raises(StorageError, match=f"version {VERSION + 1}, found {VERSION}, which a server's start migrates"):
        Ledger(todays, migrate=False)
    assert version(todays) == str(VERSION)
    Ledger(todays).close()
    assert version(todays) == str(VERSION + 1)
    assert rows_of(todays, "SELECT more FROM models") == []


SET_VERSION = f"UPDATE {VERSION_TABLE} SET version_num = "
OLD = "made by a phonograd from before the first release"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            f"{SET_VERSION}'{VERSION + 1}'",
            f"expected ledger version {VERSION} or earlier, found {VERSION + 1}, written by a newer phonograd",
        ),
        (f"{SET_VERSION}'{FIRST - 1}'", f"found version {FIRST - 1}, {OLD}; choose an empty"),
        (f"DROP TABLE {VERSION_TABLE}", f"found version 1, {OLD}"),
    ],
)
def test_a_ledger_of_an_unknown_version_is_refused_unchanged(change: str, message: str, todays: Path) -> None:
    with contextlib.closing(sqlite3.connect(todays)) as ledger, ledger:
        ledger.execute(change)
    before = sqlite_dump(todays)
    for migrate in (True, False):
        with pytest.raises(StorageError, match=message):
            Ledger(todays, migrate=migrate)
    assert sqlite_dump(todays) == before


def test_a_file_that_is_no_ledger_is_refused_where_none_may_be_made(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "ledger.sqlite").close()
    with pytest.raises(StorageError, match="expected a ledger, found none in it"):
        Ledger(tmp_path / "ledger.sqlite", create=False)
