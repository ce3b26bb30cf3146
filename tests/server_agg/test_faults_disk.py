"""Disks that refuse: 507, nothing lost, and it goes on once they do not."""

import contextlib
import os
import sqlite3
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy.engine.default import DefaultDialect

from phonograd.device_runtime.base.errors import ServerRefusedError, StorageError
from phonograd.device_runtime.client.server_client import upload_update
from phonograd.device_runtime.formats.tensor_file import load_tensors
from phonograd.server_agg.http.receiving import Receiving
from phonograd.server_agg.rounds.uploads import UploadMetadata
from phonograd.server_agg.storage.ledger import WireBytes
from phonograd.server_agg.storage.state_folder import StateFolder
from tests.server_agg.coordinators import file_names, open_coordinator, send
from tests.server_agg.faults import QUICK, raising
from tests.server_agg.http_uploads import check_problem, final_report
from tests.server_agg.tus_phone import announced, incoming, phone_with
from tests.server_agg.workshop import RunningServer, StartServer, Workshop, client_of, run_server, settings_with

refuse = raising(StorageError("updates: cannot write: Input/output error"))


class FailingDisk:
    """Refuses at a step, counted from `arm` on: once, or at all that follow too."""

    def __init__(self, patch: pytest.MonkeyPatch):
        self._steps = 0
        self._at: int | None = None
        self._lasting = False
        self.refused = 0
        for name in ("fsync", "link", "replace", "ftruncate"):
            self._around(patch, os, name, OSError(28, "No space left on device"))
        full = sqlite3.OperationalError("database or disk is full")
        self._around(patch, DefaultDialect, "do_commit", full)
        store = Receiving._store

        def store_half(receiving: Receiving, file: Any, data: bytearray) -> None:
            if self._refuses():
                store(receiving, file, data[: len(data) // 2])
                raise OSError(28, "No space left on device")
            store(receiving, file, data)

        patch.setattr(Receiving, "_store", store_half)

    def _around(self, patch: pytest.MonkeyPatch, owner: Any, name: str, error: Exception) -> None:
        function = getattr(owner, name)

        def refusing(*arguments: Any, **named: Any) -> Any:
            if self._refuses():
                raise error
            return function(*arguments, **named)

        patch.setattr(owner, name, refusing)

    def _refuses(self) -> bool:
        if self._at is None or threading.current_thread().name == "rounds":
            return False
        self._steps += 1
        refuses = self._steps >= self._at if self._lasting else self._steps == self._at
        self.refused += refuses
        return refuses

    def arm(self, at: int, lasting: bool) -> None:
        self._steps, self._at, self._lasting, self.refused = 0, at, lasting, 0

    def disarm(self) -> None:
        self._at = None


@pytest.mark.parametrize(
    ("lasting", "publish", "stride"),
    [
        (False, "rows-f32", 3),
        (True, "top-rows", 3),
        pytest.param(True, "rows-f32", 1, marks=pytest.mark.long),
    ],
)
def test_a_disk_that_is_full_at_any_step(
    lasting: bool,
    publish: str,
    stride: int,
    start_server: StartServer,
    workshop: Workshop,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """507 and nothing lost at every step of an upload and a round's end; once there is space the same phone goes on."""
    with start_server(clients_per_round=1, publish=publish) as server:
        disk = FailingDisk(monkeypatch)
        steps = range(1, 100, stride)
        for at in steps:
            number = server.coordinator.current.round
            base = server.coordinator.folder.model(server.coordinator.current.base_sha256)
            with client_of(server.url) as http:
                phone = phone_with(http, "phone1", workshop.update(1, number, base=base))
                disk.arm(at, lasting)
                answer = phone.send(4000)
                disk.disarm()
                assert answer.status_code in (201, 204, 507), answer.text
                if answer.status_code == 507:
                    check_problem(answer, 507, "its disk refuses; send again later")
                    assert str(server.state) not in answer.text
                # There is space again.
                receipt = phone.finish()
            assert (receipt["round"], receipt["accepted"]) == (number, 1)
            server.coordinator.tick()
            assert server.coordinator.current.round == number + 1
            found = load_tensors(server.coordinator.folder.model(server.coordinator.current.base_sha256))
            for name, trained in workshop.trained(1, base=base).items():
                assert publish == "top-rows" or np.allclose(found[name], trained, rtol=0, atol=1e-6)
            if not disk.refused:
                break
        assert at > 10
        assert incoming(server) == []
        assert file_names(server.state / "drafts") == set()
        assert [entry["accepted"] for entry in final_report(server)["rounds"]] == [1] * (steps.index(at) + 1) + [0]


def test_a_round_s_end_is_finished_before_the_next_is_touched(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ended in the ledger, the disk refuses what follows: the next round must not take the ended one's place."""
    with open_coordinator(workshop, tmp_path / "state", settings_with(clients_per_round=1)) as coordinator:
        with monkeypatch.context() as patch:
            patch.setattr(StateFolder, "delete_updates_except", refuse)
            receipt = send(coordinator, workshop.update(1), "a")
            assert receipt.round_closed
            with pytest.raises(StorageError):
                send(coordinator, workshop.update(2), "b")
        coordinator.tick()
        assert (coordinator.current.round, coordinator.current.accepted) == (2, 0)
        assert coordinator.current.base_sha256 == receipt.model_sha256


def test_a_report_needs_no_space(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = server.coordinator.ledger
    with client_of(server.url) as http, monkeypatch.context() as patch:
        patch.setattr(ledger, "writing", refuse)
        ledger.count(1, "phone1", "round", WireBytes(up_headers=10))  # so that there is something to write
        for path in ("/v1/report", "/v1/report.csv", "/v1/report/rounds/1"):
            assert http.get(path).status_code == 200


def test_a_restart_with_a_round_due_and_a_full_disk_serves_the_model(
    workshop: Workshop, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):  # the round becomes due; the same after a restart
        with monkeypatch.context() as patch:
            patch.setattr("phonograd.server_agg.aggregation.next_model.write_model", refuse)
            with run_server(workshop, state, clients_per_round=1) as server, client_of(server.url) as http:
                if not server.coordinator.current.accepted:
                    upload_update(server.url, workshop.update(1), "phone1", retry=QUICK)
                answer = http.get("/healthz")
                assert (answer.status_code, server.coordinator.current.round) == (503, 1)
                assert "the round is due and cannot be closed" in answer.json()["detail"]
                assert http.get("/v1/model").content == workshop.base_path.read_bytes()
    with run_server(workshop, state, clients_per_round=1) as server, client_of(server.url) as http:
        assert (http.get("/healthz").status_code, server.coordinator.current.round) == (200, 2)


def test_a_complete_upload_waits_for_space_at_a_restart(
    workshop: Workshop, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    update = workshop.update(1)
    with open_coordinator(workshop, state) as coordinator:
        upload = coordinator.create_upload(UploadMetadata("phone1", update.stat().st_size))
        coordinator.folder.upload(upload.id).write_bytes(update.read_bytes())
    with monkeypatch.context() as patch:
        patch.setattr(StateFolder, "link_into_place", refuse)
        with open_coordinator(workshop, state) as coordinator:
            assert coordinator.current.accepted == 0
    with open_coordinator(workshop, state) as coordinator:
        assert coordinator.current.accepted == 1


def test_our_client_goes_on_once_the_disk_has_space(
    server: RunningServer, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    update = workshop.update(1)
    with monkeypatch.context() as patch:
        patch.setattr(server.coordinator.folder, "link_into_place", refuse)
        for _ in range(2):
            with pytest.raises(ServerRefusedError, match=r"refused \(507 "):
                upload_update(server.url, update, "phone1", retry=QUICK)
    assert upload_update(server.url, update, "phone1", retry=QUICK).accepted == 1
    (entry,) = final_report(server)["rounds"]  # a small update is sent with each announcement
    assert (entry["useful_bytes"], entry["retried_bytes"]) == (update.stat().st_size, 2 * update.stat().st_size)


def test_bytes_that_the_disk_did_not_take_are_not_in_the_hash(
    server: RunningServer, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hashed_only(receiving: Receiving, _file: Any, data: bytearray) -> None:
        for digest in receiving._digests:
            digest.update(bytes(data))
        raise OSError(28, "No space left on device")

    with client_of(server.url) as http:
        phone = announced(http, "phone1", workshop.update(1))
        with monkeypatch.context() as patch:
            patch.setattr(Receiving, "_store", hashed_only)
            check_problem(phone.patch(0, phone.data), 507, "send again later")
        assert phone.offset() == 0
        assert phone.patch(0, phone.data).status_code == 204


def test_another_process_may_hold_the_ledger(
    start_server: StartServer, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("phonograd.server_agg.storage.databases.BUSY_SECONDS", 0.5)
    with start_server() as server, client_of(server.url) as http:
        phone = announced(http, "phone1", workshop.update(1))
        with contextlib.closing(sqlite3.connect(server.state / "ledger.sqlite", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            check_problem(phone.patch(0, phone.data), 507, "send again later")
            assert http.get("/v1/round").json()["accepted"] == 0
            other.execute("ROLLBACK")
        assert phone.patch(len(phone.data), b"").status_code == 204
        assert phone.outcome().json()["state"] == "accepted"
