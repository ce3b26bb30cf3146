"""Ledgers written by hand, and the steps that their database takes."""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, func, insert, select

from phonograd.device_runtime.base.errors import StorageError
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.rounds.opening import add_round
from phonograd.server_agg.settings.server import ServerSettings
from phonograd.server_agg.storage.ledger import Ledger, WireBytes
from phonograd.server_agg.storage.tables import Model, Round, Traffic, Update, UpdateState
from tests.server_agg.coordinators import open_coordinator
from tests.server_agg.workshop import Workshop, settings_with


def a_ledger(place: Path | str) -> Ledger:
    """A ledger with one open round."""
    ledger = Ledger(place)
    with ledger.writing() as session:
        session.add(Model(sha256="a" * 64, round=0, bytes=1, created_at=0.0))
        session.flush()
        add_round(session, 0.0, 1, "a" * 64, ServerSettings())
    return ledger


def an_update(identifier: str, state: UpdateState, round_: int = 1, codec: str | None = None) -> Update:
    row = {"phone": "a", "state": state, "length": 10, "created_at": 0.0, "requests": 0, "codec": codec}
    return Update(id=identifier, round=round_, **row)


STEPS_COUNTED_IN = 10  # instructions of SQLite's virtual machine


@contextlib.contextmanager
def count_steps(coordinator: Coordinator) -> Iterator[list[int]]:
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


def check_that_size_costs_nothing(
    workshop: Workshop, folder: Path, prepare: Callable[[Coordinator, int], None], act: Callable[[Coordinator], object]
) -> None:
    """`act` takes about as many steps after preparations of many rows as after those of few."""
    steps = []
    for size in (20, 3000):
        settings = settings_with(clients_per_round=2, max_clients=3)
        with open_coordinator(workshop, folder / f"{size}", settings) as coordinator:
            prepare(coordinator, size)
            with count_steps(coordinator) as counted:
                act(coordinator)
        steps.append(counted[0])
    assert 0 < steps[1] < 1.2 * steps[0]


def a_ledger_with(state: Path, *traffic: tuple[Any, ...]) -> Path:
    """A state folder's ledger: one open round with this traffic."""
    with contextlib.closing(a_ledger(state / "ledger.sqlite")) as ledger:
        for phone, kind, wire in traffic:
            ledger.count(1, phone, kind, wire)
        ledger.flush()
    return state


def check_that_a_report_reads_one_snapshot(ledger: Ledger) -> None:
    count = select(func.count()).select_from(Update)
    with ledger.reading() as session:
        assert session.scalar(count) == 0
        with ledger.writing() as writer:
            writer.add(an_update("x", "rejected"))
        assert session.scalar(count) == 0
    with ledger.reading() as session:
        assert session.scalar(count) == 1


def check_that_a_phone_counts_once(ledger: Ledger) -> None:
    with ledger.writing() as session:
        session.add(an_update("x", "accepted"))
    with pytest.raises(StorageError, match="UNIQUE|one_accepted_update_per_phone"), ledger.writing() as session:
        session.add(an_update("y", "accepted"))
    with pytest.raises(StorageError, match="(?i)foreign key"), ledger.writing() as session:
        session.add(an_update("z", "rejected", round_=2))


def check_that_traffic_is_added_up(ledger: Ledger) -> None:
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


LEDGER_CHECKS = (check_that_a_report_reads_one_snapshot, check_that_a_phone_counts_once, check_that_traffic_is_added_up)
