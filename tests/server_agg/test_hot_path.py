"""What an update costs: few statements, none of them reads a table from end to end, and one request if it is small."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine, event, select

from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.client import resumable_upload
from phonograd.device_runtime.client.server_client import upload_update
from phonograd.server_agg.http import downloads
from phonograd.server_agg.refusals import DuplicatePhoneError, LateUpdateError
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.rounds.uploads import UploadMetadata
from phonograd.server_agg.storage import queries
from phonograd.server_agg.storage.ledger import WireBytes
from phonograd.server_agg.storage.tables import Traffic
from tests.server_agg.coordinators import open_coordinator, send
from tests.server_agg.http_uploads import final_report
from tests.server_agg.workshop import RunningServer, Workshop, settings_with

TRANSACTION = ("BEGIN", "BEGIN IMMEDIATE")
# Most statements of an update: of its announcement, and of its bytes once they are here.
ANNOUNCING, SETTLING = 5, 6


@contextlib.contextmanager
def see_statements() -> Iterator[list[tuple[str, Any]]]:
    """The statements of the block, with the parameters of the first row that each is for."""
    seen: list[tuple[str, Any]] = []

    def see(_connection: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, many: bool) -> None:
        if statement not in TRANSACTION:
            seen.append((statement, parameters[0] if many else parameters))

    event.listen(Engine, "before_cursor_execute", see)
    try:
        yield seen
    finally:
        event.remove(Engine, "before_cursor_execute", see)


def plans_of(coordinator: Coordinator, statements: list[tuple[str, Any]]) -> dict[str, list[str]]:
    """How SQLite would run each statement."""
    with coordinator.ledger.reading() as session:
        connection = session.connection()
        return {
            statement: [row.detail for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)]
            for statement, parameters in statements
        }


def test_no_statement_of_a_phone_reads_a_table_from_end_to_end(workshop: Workshop, state: Path) -> None:
    limited = settings_with(clients_per_round=2, max_clients=50, models_kept=9)
    with open_coordinator(workshop, state, limited) as coordinator:
        for number in (1, 2, 3):
            base = coordinator.folder.model(coordinator.current.base_sha256)
            for phone in (1, 2):
                send(coordinator, workshop.update(10 * number + phone, number, base=base), f"phone{phone}")
        first, base = workshop.update(11), coordinator.folder.model(coordinator.current.base_sha256)
        late = UploadMetadata("phone3", 1000, "0" * 64, workshop.base_sha256, 1)
        with see_statements() as statements:
            coordinator.ledger.count(4, "phone3", "round", WireBytes())
            assert coordinator.participation("phone3") is None
            with pytest.raises(LateUpdateError):
                coordinator.create_upload(late)
            assert send(coordinator, workshop.update(1, 4, base=base), "phone3").accepted == 1
            assert send(coordinator, workshop.update(1, 4, base=base), "phone3").accepted == 1  # announced again
            assert isinstance(coordinator.participation("phone3"), DuplicatePhoneError)
            assert send(coordinator, first, "phone1").round_closed  # counted in round 1
            again = coordinator.create_upload(UploadMetadata("phone1", first.stat().st_size))  # without its hash
            coordinator.folder.upload(again.id).write_bytes(first.read_bytes())
            assert coordinator.ingest(again.id, sha256_of_file(first), 10).round == 1
        plans = plans_of(coordinator, statements)
        assert len(plans) > 10
        assert any("SEARCH updates USING" in line for lines in plans.values() for line in lines)
        scans = {one: lines for one, lines in plans.items() if any(line.startswith("SCAN") for line in lines)}
        # The newest round is the first of the primary key's index, backwards.
        assert {one for one in scans if "ORDER BY rounds.number DESC" not in one} == set()


def test_an_update_takes_few_statements_however_many_requests_were_counted(workshop: Workshop, state: Path) -> None:
    with open_coordinator(workshop, state, settings_with(clients_per_round=9)) as coordinator:
        send(coordinator, workshop.update(1), "phone1")
        for phone in range(20):
            coordinator.ledger.count(1, f"phone{phone}", "round", WireBytes(up_headers=phone))
        update = workshop.update(2)
        with see_statements() as statements:
            record = coordinator.create_upload(UploadMetadata("phone2", update.stat().st_size, None, None, 1))
            assert len(statements) <= ANNOUNCING, statements
            coordinator.folder.upload(record.id).write_bytes(update.read_bytes())
            del statements[:]
            coordinator.ingest(record.id, sha256_of_file(update), update.stat().st_size)
            assert len(statements) <= SETTLING, statements
        with coordinator.ledger.reading() as session:
            rows = session.scalars(select(Traffic).where(Traffic.kind == "round"))
            counted = {row.phone: row.up_header_bytes for row in rows}
        assert counted == {f"phone{phone}": phone for phone in range(20)}


@pytest.mark.parametrize(("too_large", "requests"), [(0, 1), (1, 3)])
def test_a_small_update_is_one_request_and_a_large_one_is_announced_first(
    too_large: int,
    requests: int,
    server: RunningServer,
    http: httpx.Client,
    workshop: Workshop,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    update = workshop.update(1)
    monkeypatch.setattr(resumable_upload, "SMALL_BYTES", update.stat().st_size - too_large)
    receipt = upload_update(server.url, update, "phone1")
    final_report(server)
    with server.coordinator.ledger.reading() as session:
        (row,) = session.scalars(select(Traffic).where(Traffic.phone == "phone1"))
        (upload,) = queries.updates_of_phone(session, "phone1", "accepted")
    assert (row.kind, row.requests, row.up_body_bytes) == ("upload", requests, update.stat().st_size)
    told = http.get(f"/v1/uploads/{upload.id}").json()["receipt"]
    assert told == {name: getattr(receipt, name) for name in told}


def test_what_the_phones_of_a_round_ask_for_is_read_once(
    server: RunningServer, http: httpx.Client, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, bytes_of = list[int](), downloads._bytes_of

    def reading(files: Any, start: int, stop: int) -> Iterator[bytes]:
        read.append(stop - start)
        yield from bytes_of(files, start, stop)

    monkeypatch.setattr(downloads, "_bytes_of", reading)
    monkeypatch.setattr(downloads, "CHUNK_BYTES", 1000)
    model, whole = workshop.base_path.read_bytes(), workshop.base_path.stat().st_size
    for _ in range(3):
        assert http.get("/v1/model").content == model
        assert http.get("/v1/model", headers={"Range": "bytes=7-"}).content == model[7:]
    assert http.head("/v1/model").headers["Content-Length"] == str(whole)
    assert read[:2] == [whole, whole - 7]
    assert len(read) <= 3
    path = server.coordinator.folder.model(workshop.base_sha256)
    os.utime(path, (0, 0))
    del read[:]
    assert http.get("/v1/model").content == model
    assert read == [whole]
    monkeypatch.setattr(downloads, "HELD_BYTES", whole - 1)
    del read[:]
    for _ in range(2):
        assert http.get("/v1/model").content == model
    assert read == [whole, whole]
