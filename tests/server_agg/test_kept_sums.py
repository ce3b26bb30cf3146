"""Sums by round that the database keeps, and figures of closed rounds: at any time what all rows would give."""

import contextlib
import re
import tempfile
from collections.abc import Callable, Iterator
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
from tests.server_agg.ledgers import a_ledger, add_history, check_that_size_costs_nothing
from tests.server_agg.read_from_rows import check_report, rows_read
from tests.server_agg.workshop import Workshop, settings_with


@pytest.mark.long
@given(st.randoms(use_true_random=False))
@settings(max_examples=4)
def test_sums_are_those_of_the_rows_whatever_happens_to_them(random: Random) -> None:
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(a_ledger(Path(folder) / "ledger")) as ledger:
        check_a_history(ledger, random)


def read_metrics(coordinator: Coordinator) -> str:
    return bytes(MetricsRoute(coordinator, CollectorRegistry()).metrics(None).body).decode()


@pytest.mark.parametrize("read", [lambda coordinator: report_of(coordinator.ledger), read_metrics])
def test_reports_and_metrics_cost_no_more_in_a_ledger_with_a_long_history(
    read: Callable[[Coordinator], object], workshop: Workshop, tmp_path: Path
) -> None:
    def prepare(coordinator: Coordinator, updates: int) -> None:
        add_history(coordinator, updates)
        with coordinator.ledger.writing() as session:
            session.execute(update(Round).where(Round.number == 0).values(epsilon=1.0))  # so metrics tell of privacy
        report_of(coordinator.ledger)

    check_that_size_costs_nothing(workshop, tmp_path, prepare, read)


@pytest.fixture
def coordinator(workshop: Workshop, state: Path) -> Iterator[Coordinator]:
    """A coordinator with a closed round of two phones, of which nothing is kept yet."""
    with open_coordinator(workshop, state, settings_with(clients_per_round=2)) as coordinator:
        for seed in (1, 2):
            send(coordinator, workshop.update(seed), f"phone{seed}")
            coordinator.ledger.count(1, f"phone{seed}", "model", WireBytes(1, 2, 3, 1000 * seed))
        coordinator.ledger.flush()
        yield coordinator


def kept_maxima(ledger: Ledger) -> dict[int, int | None]:
    with ledger.reading() as session:
        return {row.round: row.down_max for row in session.scalars(select(RoundFigures))}


def test_metrics_are_those_of_the_rows(coordinator: Coordinator) -> None:
    def metrics() -> list[str]:
        lines = read_metrics(coordinator).splitlines()
        return [line for line in lines if line.startswith("phonograd_") and not re.search("_(free|due)_", line)]

    with rows_read():
        expected = metrics()
    assert metrics() == expected
    assert 'phonograd_updates{state="accepted"} 2.0' in expected


def test_figures_of_a_closed_round_are_kept_until_its_rows_change(coordinator: Coordinator) -> None:
    ledger = coordinator.ledger
    assert kept_maxima(ledger) == {}
    assert report_of(ledger).rounds[0].phone_down_max_bytes == 2003
    assert kept_maxima(ledger) == {1: 2003}
    with ledger.writing() as session:
        session.execute(update(RoundFigures).values(down_max=7))
    assert report_of(ledger).rounds[0].phone_down_max_bytes == 7  # nobody has looked at the rows
    ledger.count(1, "phone2", "model", WireBytes(down_body=5))
    assert check_report(ledger)["rounds"][0]["phone_down_max_bytes"] == 2008
    assert kept_maxima(ledger) == {1: 2008}


def test_every_change_of_a_closed_round_is_seen(coordinator: Coordinator) -> None:
    ledger, x, of_first = coordinator.ledger, Update.id == "x", Traffic.round == 1
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


def test_what_changes_while_a_round_is_read_is_not_lost(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, read = coordinator.ledger, figures._read

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
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, disk_full = coordinator.ledger, raising(StorageError("the ledger failed: disk full"))
    with monkeypatch.context() as patch:
        patch.setattr(ledger, "writing", disk_full)
        assert check_report(ledger)["rounds"][0]["phone_down_max_bytes"] == 2003
    assert kept_maxima(ledger) == {}
    figures.refresh(ledger)
    ledger.count(1, "phone2", "model", WireBytes(down_body=5))
    ledger.flush()
    with monkeypatch.context() as patch:
        patch.setattr(ledger, "writing", disk_full)
        assert check_report(ledger)["rounds"][0]["phone_down_max_bytes"] == 2008
    assert kept_maxima(ledger) == {1: 2003}
