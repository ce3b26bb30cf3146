"""Many phones at once, and one thing that is held up: whoever needs nothing of it is answered all the same."""

import contextlib
import socket
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from phonograd.server_agg.http.thread_pools import SETTLING_THREADS
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.upload_bytes import FileBytes
from tests.server_agg.faults import adds_up, answer_on
from tests.server_agg.http_uploads import final_report, head_of
from tests.server_agg.workshop import RunningServer, StartServer, Workshop, client_of
from tests.support.waiting import until

# More than all threads that requests share: anyio has 40.
CROWD = 50


@contextlib.contextmanager
def crowd(server: RunningServer, workshop: Workshop) -> Iterator[list[socket.socket]]:
    """Open CROWD connections, over each of which a phone has sent its whole update."""
    with contextlib.ExitStack() as stack:
        connections = []
        data = workshop.update(1).read_bytes()
        for number in range(CROWD):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            connection.sendall(head_of(data, f"phone{number}") + data)
            connections.append(connection)
        yield connections


def until_all_are_asking(server: RunningServer) -> None:
    until(lambda: len(server.requests) >= CROWD, "all requests")


@pytest.fixture
def held() -> Iterator[threading.Event]:
    """What holds until it is set, at the end of the test at the latest."""
    release = threading.Event()
    yield release
    release.set()


def still_answers(http: httpx.Client) -> None:
    assert http.get("/healthz").status_code == 200
    assert http.get("/v1/round", headers={"Phonograd-Phone": "another"}).json()["participate"] is True
    assert http.get("/v1/model").status_code == 200


def test_settling_holds_up_nobody_else(
    start_server: StartServer, workshop: Workshop, held: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    with start_server(clients_per_round=CROWD) as server, client_of(server.url) as http:
        ingest, at_once, lock = server.coordinator.ingest, [0, 0], threading.Lock()

        def settle_later(*arguments: Any) -> Any:
            with lock:
                at_once[0] += 1
                at_once[1] = max(at_once)
            held.wait()
            try:
                return ingest(*arguments)
            finally:
                with lock:
                    at_once[0] -= 1

        monkeypatch.setattr(server.coordinator, "ingest", settle_later)
        with crowd(server, workshop) as phones:
            # All of them were created, received and stored; only ingesting them is left.
            uploads = server.coordinator.uploads
            until(lambda: sum(upload.complete for upload in uploads.unfinished_uploads()) == CROWD, "all updates")
            until(lambda: at_once[0] == SETTLING_THREADS, "the first to be ingested")
            still_answers(http)
            held.set()
            assert {answer_on(phone)[:12] for phone in phones} == {b"HTTP/1.1 201"}
        assert at_once == [0, SETTLING_THREADS]
        closed = final_report(server)["rounds"][0]
    assert (closed["ending"], closed["accepted"], closed["upload_starts"]) == ("full", CROWD, CROWD)
    assert closed["retried_bytes"] == 0
    assert adds_up(closed)


def test_a_ledger_that_another_process_writes_holds_up_no_reader(start_server: StartServer, workshop: Workshop) -> None:
    with (
        start_server(clients_per_round=CROWD) as server,
        client_of(server.url) as http,
        contextlib.closing(sqlite3.connect(server.state / "ledger.sqlite", isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        with crowd(server, workshop) as phones:
            until_all_are_asking(server)
            still_answers(http)
            other.execute("ROLLBACK")
            assert {answer_on(phone)[:12] for phone in phones} == {b"HTTP/1.1 201"}


def test_a_disk_that_takes_its_time_holds_up_no_reader(
    start_server: StartServer, workshop: Workshop, held: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, coming = FileBytes.append, threading.Semaphore(0)

    def append_later(*arguments: Any) -> Any:
        coming.release()
        held.wait()
        return append(*arguments)

    monkeypatch.setattr(FileBytes, "append", append_later)
    with (
        start_server(clients_per_round=CROWD) as server,
        client_of(server.url) as http,
        crowd(server, workshop) as phones,
    ):
        until_all_are_asking(server)
        coming.acquire()
        still_answers(http)
        held.set()
        assert {answer_on(phone)[:12] for phone in phones} == {b"HTTP/1.1 201"}


def test_the_ledger_has_a_connection_for_every_reader(tmp_path: Path) -> None:
    with contextlib.closing(Ledger(tmp_path / "ledger.sqlite")) as ledger, contextlib.ExitStack() as stack:
        for _ in range(CROWD):
            session = stack.enter_context(ledger.reading())
            assert session.scalar(text("SELECT 1")) == 1
