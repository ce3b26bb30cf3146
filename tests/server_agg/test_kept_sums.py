"""Sums by round that the database keeps, and figures of closed rounds: at any time what all rows would give."""

import contextlib
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from sqlalchemy import delete, insert, select, update
from sqlalchemy.orm import Session

from phonograd.device_runtime.base.errors import StorageError
from phonograd.server_agg.http.monitoring import MetricsRoute
from phonograd.server_agg.report.document import report_of
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.storage import figures, sums
from phonograd.server_agg.storage.ledger import Ledger, WireBytes
from phonograd.server_agg.storage.tables import HTTP_COUNTERS, Round, RoundFigures, Traffic, Update
from tests.server_agg.coordinators import open_coordinator, send
from tests.server_agg.faults import raising
from tests.server_agg.ledger_changes import check_a_history
from tests.server_agg.ledgers import FEW, MANY, a_ledger, add_history, count_steps
from tests.server_agg.read_from_rows import check_report, rows_read
from tests.server_agg.workshop import Workshop, settings_with


@given(st.randoms(use_true_random=False))
@settings(max_examples=4)
def test_sums_are_those_of_the_rows_whatever_happens_to_them(random: Random) -> None:
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(a_ledger(Path(folder) / "ledger")) as ledger:
        check_a_history(ledger, random)


def steps_of_reading(workshop: Workshop, state: Path, updates: int) -> dict[str, int]:
    """Instructions of the database for a report and for metrics once a round of so many updates is over."""
    found: dict[str, int] = {}
    with open_coordinator(workshop, state, settings_with(clients_per_round=2)) as coordinator:
        add_history(coordinator, updates)
        with coordinator.ledger.writing() as session:
            session.execute(update(Round).where(Round.number == 0).values(epsilon=1.0))  # so metrics tell of privacy
        route = MetricsRoute(coordinator, CollectorRegistry())
        report_of(coordinator.ledger)
        for name, read in {
            "report": lambda: report_of(coordinator.ledger),
            "metrics": lambda: route.metrics(None),
        }.items():
            with count_steps(coordinator) as counted:
                read()
            found[name] = counted[0]
    return found


def test_reports_and_metrics_cost_no_more_in_a_ledger_with_a_long_history(workshop: Workshop, tmp_path: Path) -> None:
    few, many = (steps_of_reading(workshop, tmp_path / f"{n}", n) for n in (FEW, MANY))
    for name in ("report", "metrics"):
        assert 0 < many[name] < 1.2 * few[name]


@pytest.fixture
def over(workshop: Workshop, state: Path) -> Iterator[Coordinator]:
    """With a closed round of two phones, of which nothing is kept yet."""
    with open_coordinator(workshop, state, settings_with(clients_per_round=2)) as coordinator:
        for seed in (1, 2):
            send(coordinator, workshop.update(seed), f"phone{seed}")
            coordinator.ledger.count(1, f"phone{seed}", "model", WireBytes(1, 2, 3, 1000 * seed))
        coordinator.ledger.flush()
        yield coordinator


def kept(ledger: Ledger) -> dict[int, int | None]:
    with ledger.reading() as session:
        return {row.round: row.down_max for row in session.scalars(select(RoundFigures))}


def test_metrics_are_those_of_the_rows(over: Coordinator) -> None:
    def metrics() -> list[str]:
        body = bytes(MetricsRoute(over, CollectorRegistry()).metrics(None).body).decode()
        return [
            line for line in body.splitlines() if line.startswith("phonograd_") and not re.search("_(free|due)_", line)
        ]

    with rows_read():
        expected = metrics()
    assert metrics() == expected
    assert 'phonograd_updates{state="accepted"} 2.0' in expected


def test_figures_of_a_closed_round_are_kept_until_its_rows_change(over: Coordinator) -> None:
    ledger = over.ledger
    assert kept(ledger) == {}
    assert report_of(ledger).rounds[0].phone_down_max_bytes == 2003
    assert kept(ledger) == {1: 2003}
    with ledger.writing() as session:
        session.execute(update(RoundFigures).values(down_max=7))
    assert report_of(ledger).rounds[0].phone_down_max_bytes == 7  # nobody has looked at the rows
    ledger.count(1, "phone2", "model", WireBytes(down_body=5))
    assert check_report(ledger)["rounds"][0]["phone_down_max_bytes"] == 2008
    assert kept(ledger) == {1: 2008}


def test_every_change_of_a_closed_round_is_seen(over: Coordinator) -> None:
    ledger, x, of_first = over.ledger, Update.id == "x", Traffic.round == 1
    row = {"phone": "a", "state": "rejected", "length": 10, "created_at": 0.0, "requests": 1, "received_bytes": 5}
    counters = dict.fromkeys(HTTP_COUNTERS, 3)
    for change in (
        insert(Update).values(id="x", round=1, **row),
        update(Update).where(x).values(received_bytes=7),
        update(Update).where(x).values(round=2),
        update(Update).where(x).values(round=1),
        delete(Update).where(x),
        insert(Traffic).values(round=1, phone="b", kind="round", **counters),
        update(Traffic).where(of_first, Traffic.kind == "round").values(down_body_bytes=4),
        delete(Traffic).where(of_first, Traffic.kind == "round"),
    ):
        before = check_report(ledger)
        with ledger.writing() as session:
            assert sums.unkept(session, closed=True) == []
            session.execute(change)
        assert check_report(ledger) != before


def test_what_changes_while_a_round_is_read_is_not_lost(over: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, read = over.ledger, figures._read

    def straggler() -> None:
        ledger.count(1, "phone2", "model", WireBytes(down_body=5))
        ledger.flush()

    def read_slowly(session: Session, numbers: list[int]) -> list[dict[str, Any]]:
        found = read(session, numbers)
        straggler()
        return found

    straggler()
    with monkeypatch.context() as patch:
        patch.setattr(figures, "_read", read_slowly)
        figures.refresh(ledger)
    assert check_report(ledger)["rounds"][0]["phone_down_max_bytes"] == 2013


def test_a_ledger_that_cannot_be_written_is_reported_all_the_same(
    over: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, disk_full = over.ledger, raising(StorageError("the ledger failed: disk full"))
    with monkeypatch.context() as patch:
        patch.setattr(ledger, "writing", disk_full)
        assert check_report(ledger)["rounds"][0]["phone_down_max_bytes"] == 2003
    assert kept(ledger) == {}
    figures.refresh(ledger)
    ledger.count(1, "phone2", "model", WireBytes(down_body=5))
    ledger.flush()
    with monkeypatch.context() as patch:
        patch.setattr(ledger, "writing", disk_full)
        assert check_report(ledger)["rounds"][0]["phone_down_max_bytes"] == 2008
    assert kept(ledger) == {1: 2003}
