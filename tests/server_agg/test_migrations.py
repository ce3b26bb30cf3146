"""A ledger of an earlier version goes on; one that a later release wrote is left alone."""

import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest

from phonograd.device_runtime.base.errors import StorageError
from phonograd.server_agg.storage import migrations
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.migrations import VERSION, VERSION_TABLE

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
def ledger(tmp_path: Path) -> Path:
    """One of today's version."""
    path = tmp_path / "ledger.sqlite"
    Ledger(path).close()
    return path


def test_the_next_release_migrates_a_ledger_of_this_one(
    ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert versions(ledger) == [str(VERSION)]
    revisions = Path(shutil.copytree(migrations.REVISIONS, tmp_path / "revisions"))
    (revisions / "versions" / "next.py").write_text(NEXT)
    monkeypatch.setattr(migrations, "REVISIONS", revisions)
    monkeypatch.setattr(migrations, "VERSION", VERSION + 1)
    with pytest.raises(StorageError, match=f"version {VERSION + 1}, found {VERSION}, which a server's start migrates"):
        Ledger(ledger, migrate=False)
    assert versions(ledger) == [str(VERSION)]
    Ledger(ledger).close()
    assert versions(ledger) == [str(VERSION + 1)]
    with contextlib.closing(sqlite3.connect(ledger)) as found:
        assert found.execute("SELECT more FROM models").fetchall() == []


def test_a_ledger_of_a_later_version_is_refused_unchanged(ledger: Path) -> None:
    with contextlib.closing(sqlite3.connect(ledger)) as found:
        found.execute(f"UPDATE {VERSION_TABLE} SET version_num = '{VERSION + 1}'")
        found.commit()
    before = schema(ledger)
    message = f"expected ledger version {VERSION} or earlier, found {VERSION + 1}, written by a newer phonograd"
    with pytest.raises(StorageError, match=message):
        Ledger(ledger)
    assert (schema(ledger), versions(ledger)) == (before, [str(VERSION + 1)])


def test_a_file_that_is_no_ledger_is_refused_where_none_may_be_made(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "ledger.sqlite").close()
    with pytest.raises(StorageError, match="expected a ledger, found none in it"):
        Ledger(tmp_path / "ledger.sqlite", create=False)
