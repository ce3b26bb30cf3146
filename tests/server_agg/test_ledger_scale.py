"""An upload costs the same work in the database, however many updates the ledger has."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import event, insert

from phonograd.server_agg.refusals import StaleUpdateError
from phonograd.server_agg.rounds import opening
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.rounds.uploads import MOST_REFUSALS, UploadMetadata
from phonograd.server_agg.storage import queries
from phonograd.server_agg.storage.tables import Round, Selected, Update
from tests.server_agg.test_rounds import opened
from tests.server_agg.workshop import Workshop, settings_with

STEPS_COUNTED_IN = 10  # instructions of SQLite's virtual machine
FEW, MANY = 20, 3000


@contextlib.contextmanager
def counted_steps(coordinator: Coordinator) -> Iterator[list[int]]:
    """The instructions that SQLite runs for the coordinator, as the list's one item."""
    steps = [0]

    def count() -> int:
        steps[0] += STEPS_COUNTED_IN
        return 0

    def watch(connection: sqlite3.Connection, *_: object) -> None:
        connection.set_progress_handler(count, STEPS_COUNTED_IN)

    engine = coordinator.ledger._database.readers
    event.listen(engine, "checkout", watch)
    try:
        yield steps
    finally:
        event.remove(engine, "checkout", watch)


def add_history(coordinator: Coordinator, updates: int) -> None:
    """Accepted updates of `updates` phones, all but one of them different, in an earlier round."""
    with coordinator.ledger.writing() as session:
        model = coordinator.current.base_sha256
        closed = {"base_sha256": model, "result_sha256": model, "rules": "{}", "strategy": "{}", "ending": "full"}
        session.execute(insert(Round), [{"number": 0, "opened_at": 0.0, "closed_at": 1.0, **closed}])
        accepted = {"round": 0, "state": "accepted", "length": 10, "created_at": 0.5}
        rows = [
            {"id": f"{n:032x}", "phone": f"phone{n}", "sha256": f"{n:064x}", "requests": 1, **accepted}
            for n in range(updates)
        ]
        session.execute(insert(Update), rows)


def steps_of_an_upload(workshop: Workshop, state: Path, updates: int) -> int:
    update = workshop.update(1)
    metadata = UploadMetadata("phone1", update.stat().st_size, "0" * 64, workshop.base_sha256, 1)
    settings = settings_with(clients_per_round=2, max_clients=3)
    with opened(workshop, state, settings) as coordinator:
        add_history(coordinator, updates)
        with counted_steps(coordinator) as steps:
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
        with opened(workshop, tmp_path / f"{updates}", settings) as coordinator:
            add_history(coordinator, updates)
            with counted_steps(coordinator) as counted:
                coordinator._round.load()
        steps.append(counted[0])
    assert 0 < steps[1] < 1.2 * steps[0]


def test_whether_a_phone_was_sampled_is_looked_up(workshop: Workshop, tmp_path: Path) -> None:
    steps = []
    for sampled in (FEW, MANY):
        with opened(workshop, tmp_path / f"{sampled}", settings_with()) as one:
            with one.ledger.writing() as session:
                session.execute(insert(Selected), [{"round": 1, "phone": f"phone{n}"} for n in range(sampled)])
            with counted_steps(one) as counted, one.ledger.reading() as session:
                assert queries.is_selected(session, 1, "phone1")
                assert not queries.is_selected(session, 1, f"phone{sampled}")
        steps.append(counted[0])
    assert 0 < steps[1] < 1.2 * steps[0]


def test_a_phone_that_is_refused_over_and_over_costs_no_more(workshop: Workshop, tmp_path: Path) -> None:
    with opened(workshop, tmp_path / "state", settings_with()) as coordinator:
        steps = []

        def announce(times: int, first: int) -> None:
            for number in range(first, first + times):
                with pytest.raises(StaleUpdateError):
                    coordinator.create_upload(UploadMetadata("phone1", 10, f"{number:064x}", "f" * 64))

        announce(MOST_REFUSALS, 0)
        for first in (MOST_REFUSALS, MOST_REFUSALS + 100):
            with counted_steps(coordinator) as counted:
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
    with opened(workshop, tmp_path / "state", settings_with()) as coordinator:
        for number in range(5):
            record = coordinator.create_upload(UploadMetadata(f"phone{number}", 1000))
            coordinator.uploads.received(record.id, 100 * number)
        with coordinator.ledger.reading() as session:
            assert queries.pending_bytes(session) == 1000 + 900 + 800 + 700 + 600
        looked: list[int] = []
        stored = coordinator.uploads.bytes.stored
        monkeypatch.setattr(
            coordinator.uploads.bytes, "stored", lambda session, rows: looked.append(len(rows)) or stored(session, rows)
        )
        coordinator.create_upload(UploadMetadata("phone9", 1000))
        assert looked == [1]
