"""The ledger by itself: snapshots, what the database holds, traffic in memory."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import func, select

from phonograd.device_runtime.base.errors import StorageError
from phonograd.server_agg.rounds.opening import add_round
from phonograd.server_agg.settings.server import ServerSettings
from phonograd.server_agg.storage.ledger import Ledger, WireBytes
from phonograd.server_agg.storage.tables import Model, Traffic, Update, UpdateState


def a_ledger(place: Path | str) -> Ledger:
    """A ledger with one open round."""
    ledger = Ledger(place)
    with ledger.writing() as session:
        session.add(Model(sha256="a" * 64, round=0, bytes=1, created_at=0.0))
        session.flush()
        add_round(session, 0.0, 1, "a" * 64, ServerSettings())
    return ledger


def an_update(identifier: str, state: UpdateState, round_: int = 1) -> Update:
    return Update(id=identifier, round=round_, phone="a", state=state, length=10, created_at=0.0, requests=0)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with contextlib.closing(a_ledger(tmp_path / "ledger.sqlite")) as ledger:
        yield ledger


def test_a_report_reads_one_snapshot(ledger: Ledger) -> None:
    count = select(func.count()).select_from(Update)
    with ledger.reading() as session:
        assert session.scalar(count) == 0
        with ledger.writing() as writer:
            writer.add(an_update("x", "rejected"))
        assert session.scalar(count) == 0
    with ledger.reading() as session:
        assert session.scalar(count) == 1


def test_the_ledger_itself_holds_that_a_phone_counts_once(ledger: Ledger) -> None:
    with ledger.writing() as session:
        session.add(an_update("x", "accepted"))
    with pytest.raises(StorageError, match="UNIQUE|one_accepted_update_per_phone"), ledger.writing() as session:
        session.add(an_update("y", "accepted"))
    with pytest.raises(StorageError, match="(?i)foreign key"), ledger.writing() as session:
        session.add(an_update("z", "rejected", round_=2))


def test_traffic_is_added_up_and_outlives_a_failed_transaction(ledger: Ledger) -> None:
    ledger.count(1, "a", "upload", WireBytes(1, 2, 3, 4))
    ledger.count(1, "a", "upload", WireBytes(10, 20, 30, 40))
    with contextlib.suppress(RuntimeError), ledger.writing():
        raise RuntimeError("rolled back")
    ledger.count(1, "", "refused", WireBytes(5, 0, 6, 0))
    ledger.flush()
    ledger.count(1, "a", "upload", WireBytes(100, 200, 300, 400))
    ledger.flush()
    with ledger.reading() as session:
        rows = session.scalars(select(Traffic).order_by(Traffic.kind)).all()
        found = [(row.phone, row.kind, row.requests, row.up_header_bytes, row.up_body_bytes) for row in rows]
    assert found == [("", "refused", 1, 5, 0), ("a", "upload", 3, 111, 222)]
