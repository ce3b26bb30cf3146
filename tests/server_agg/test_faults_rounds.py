"""Rounds that end early, late, failed or not at all: over-selection, deadlines, late updates, rollback, failures."""

import logging
import os
from pathlib import Path

import numpy as np
import pytest

from phonograd.device_runtime.base.errors import StorageError, WeightsError
from phonograd.device_runtime.client.server_client import upload_update
from phonograd.device_runtime.formats.tensor_file import load_tensors
from phonograd.server_agg.aggregation import next_model
from phonograd.server_agg.aggregation.privacy import budget
from phonograd.server_agg.aggregation.privacy.accountant import PrivacySpent
from phonograd.server_agg.refusals import LateUpdateError, RoundFullError, UnknownRoundError
from phonograd.server_agg.report.document import read_report
from phonograd.server_agg.report.text import report_rows
from phonograd.server_agg.rounds import offline
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.rounds.uploads import UploadMetadata
from tests.server_agg.coordinators import file_names, open_coordinator, send
from tests.server_agg.faults import adds_up, raising
from tests.server_agg.http_uploads import check_problem, final_report, post, receipt
from tests.server_agg.private_runs import drawn_phones, end_round, enrol, private_coordinator, update_of
from tests.server_agg.tus_phone import announced, phone_with
from tests.server_agg.workshop import Clock, StartServer, Workshop, client_of, settings_with


def test_more_phones_than_needed_and_no_more_than_that(start_server: StartServer, workshop: Workshop) -> None:
    with start_server(clients_per_round=1, max_clients=2, retry_seconds=7.0) as server, client_of(server.url) as http:
        phones = [phone_with(http, f"phone{number}", workshop.update(number)) for number in range(3)]
        assert [phone.create_upload().status_code for phone in phones] == [201, 201, 409]
        refused = phones[2].create_upload()
        check_problem(refused, 409, "round 1: full, 2 phones take part; ask again in the next round")
        assert refused.headers["Retry-After"] == "7"
        check_problem(post(http, workshop.update(2), "phone2"), 409, "2 phones take part")
        current = http.get("/v1/round", headers={"Phonograd-Phone": "phone2"})
        assert (current.json()["participate"], current.headers["Retry-After"]) == (False, "7")
        # One that gives up leaves its place to another.
        phones[1].delete()
        assert phones[2].create_upload().status_code == 201
        assert phones[0].patch(0, phones[0].data).status_code == 204
        check_problem(phones[2].patch(0, phones[2].data), 409, "the update is of round 1, which is closed")
        assert phones[2].outcome().json()["state"] == "late"
        report = final_report(server)
    assert (report["rounds"][0]["accepted"], report["rounds"][0]["late"]) == (1, 1)


def test_phones_that_announce_and_vanish_do_not_keep_a_round_full(
    workshop: Workshop, tmp_path: Path, clock: Clock
) -> None:
    settings = settings_with(clients_per_round=2, max_clients=2, announce_seconds=100.0)
    with open_coordinator(workshop, tmp_path / "state", settings, clock) as coordinator:
        vanished, slow = (coordinator.create_upload(UploadMetadata(name, 1000)) for name in ("vanished", "slow"))
        coordinator.folder.upload(slow.id).write_bytes(b"x")
        os.utime(coordinator.folder.upload(slow.id), (clock.now, clock.now))
        clock.now += 99
        coordinator.tick()
        with pytest.raises(RoundFullError):
            coordinator.create_upload(UploadMetadata("late", 1000))
        clock.now += 2
        coordinator.tick()
        for upload, state in ((vanished, "expired"), (slow, "receiving")):
            found = coordinator.uploads.find(upload.id)
            assert found is not None and found.state == state
        coordinator.create_upload(UploadMetadata("late", 1000))
        with pytest.raises(RoundFullError):  # and so it is told when it comes back
            coordinator.create_upload(UploadMetadata("vanished", 1000))


def test_a_deadline_closes_a_round_that_has_enough(workshop: Workshop, tmp_path: Path, clock: Clock) -> None:
    settings = settings_with(clients_per_round=3, min_clients=2, deadline_seconds=60.0)
    with open_coordinator(workshop, tmp_path / "state", settings, clock) as coordinator:
        assert coordinator.current.closes_at == pytest.approx(clock.now + 60)
        send(coordinator, workshop.update(1), "a")
        clock.now += 61
        coordinator.tick()
        assert coordinator.current.round == 1  # one phone is not enough: it waits for another
        receipt = send(coordinator, workshop.update(2), "b")
        assert (receipt.round_closed, coordinator.current.round) == (True, 2)
        clock.now += 61
        coordinator.tick()
        assert coordinator.current.round == 2
        base = coordinator.folder.model(coordinator.current.base_sha256)
        for seed in (3, 4):
            send(coordinator, workshop.update(seed, 2, base=base), f"p{seed}")
        assert coordinator.current.round == 3


def test_a_deadline_waits_for_as_many_as_the_strategy_needs(workshop: Workshop, tmp_path: Path, clock: Clock) -> None:
    settings = settings_with(strategy="multi-krum", krum_byzantine=1, clients_per_round=6, deadline_seconds=60.0)
    with open_coordinator(workshop, tmp_path / "state", settings, clock) as coordinator:
        for seed in range(4):
            send(coordinator, workshop.update(seed), f"p{seed}")
        clock.now += 61
        coordinator.tick()
        assert coordinator.current.round == 1  # 2f + 3 are five, though one would do for --min-clients
        assert send(coordinator, workshop.update(4), "p4").round_closed


def test_a_late_update_moves_the_next_round_s_model_by_what_its_phone_learned(
    start_server: StartServer, workshop: Workshop
) -> None:
    with start_server(clients_per_round=1, late="next") as server, client_of(server.url) as http:
        late = announced(http, "late", workshop.update(2))
        late.patch(0, late.data[:1000])
        assert receipt(http, post(http, workshop.update(1), "phone1"))["round_closed"]
        second = load_tensors(server.coordinator.folder.model(server.coordinator.current.base_sha256))
        assert late.patch(1000, late.data[1000:]).status_code == 204
        assert late.outcome().json()["receipt"]["round"] == 2
        found = load_tensors(server.coordinator.folder.model(server.coordinator.current.base_sha256))
        report = final_report(server)
    base, trained = load_tensors(workshop.base_path), workshop.trained(2)
    for name, weights in found.items():
        learned = trained[name].astype(np.float64) - base[name]
        assert np.allclose(weights, second[name] + learned, rtol=0, atol=1e-6)
        assert not np.allclose(weights, trained[name], rtol=0, atol=1e-4)
    assert [entry["late_folded"] for entry in report["rounds"]] == [0, 1, 0]


def test_a_late_update_of_a_model_that_is_gone(workshop: Workshop, tmp_path: Path) -> None:
    settings = settings_with(clients_per_round=1, late="next", models_kept=1)
    with open_coordinator(workshop, tmp_path / "state", settings) as coordinator:
        send(coordinator, workshop.update(1), "a")
        base = coordinator.folder.model(coordinator.current.base_sha256)  # the exported one is kept for good
        in_time, late = (workshop.update(phone, 2, base=base) for phone in (2, 3))
        send(coordinator, in_time, "b")
        with pytest.raises(LateUpdateError, match="is of round 2, whose model file was deleted"):
            send(coordinator, late, "c")


def test_a_late_update_of_a_round_that_was_undone_is_dropped(workshop: Workshop, tmp_path: Path) -> None:
    with open_coordinator(workshop, tmp_path / "state", settings_with(clients_per_round=1, late="next")) as coordinator:
        bad = coordinator.folder.model(str(send(coordinator, workshop.update(1), "a").model_sha256))
        coordinator.rollback(0)
        with pytest.raises(LateUpdateError, match="is of round 2, which is closed"):
            send(coordinator, workshop.update(2, 2, base=bad), "b")


def test_the_model_of_a_late_update_is_kept_as_long_as_it_is_needed(workshop: Workshop, state: Path) -> None:
    with open_coordinator(workshop, state, settings_with(clients_per_round=1, late="next")) as coordinator:
        send(coordinator, workshop.update(1), "a")
    models = []
    for kept in (None, 1):
        settings = settings_with(clients_per_round=2, late="next", models_kept=kept)
        with open_coordinator(workshop, state, settings) as coordinator:
            if kept is None:
                send(coordinator, workshop.update(2), "b")
            else:
                base = coordinator.folder.model(coordinator.current.base_sha256)
                models.append(send(coordinator, workshop.update(3, 2, base=base), "c").model_sha256)
    assert models[0] is not None


# Rollback


def test_going_back_to_an_earlier_model(start_server: StartServer, workshop: Workshop) -> None:
    with start_server(clients_per_round=1) as server, client_of(server.url) as http:
        first = receipt(http, post(http, workshop.update(1), "a"))["model_sha256"]
        base = server.coordinator.folder.model(first)
        second = receipt(http, post(http, workshop.update(2, 2, base=base), "a"))["model_sha256"]
        open_base = server.coordinator.folder.model(second)
        started = phone_with(http, "b", workshop.update(3, 3, base=open_base))
        of_first = phone_with(http, "c", workshop.update(4, 2, base=base))
        started.create_upload()
        started.patch(0, started.data[:100])

        check_problem(http.post("/v1/rollback?round=3"), 404, "round 3: expected a closed round")
        check_problem(http.post("/v1/rollback?round=999999999"), 404, "a closed round")
        opened_ = http.post("/v1/rollback?round=1").json()
        assert (opened_["round"], opened_["base_sha256"], opened_["accepted"]) == (4, first, 0)

        # What was trained from the model that is given up is late; what was trained from this one counts.
        check_problem(started.patch(100, started.data[100:]), 409, "which is closed; round 4 is open")
        assert of_first.send().status_code == 204
        report, lineage = final_report(server), http.get("/v1/models").json()["models"]
    assert [entry["rolled_back"] for entry in report["rounds"]] == [False, True, True, False, False]
    assert [entry["ending"] for entry in report["rounds"]] == ["full", "full", "rollback", "full", None]
    parents = {model["sha256"]: model["parent_sha256"] for model in lineage}
    newest = report["rounds"][3]["model_sha256"]
    assert (parents[newest], parents[second], parents[first]) == (first, first, workshop.base_sha256)
    with start_server(clients_per_round=1) as server:
        assert (server.coordinator.current.round, server.coordinator.current.base_sha256) == (5, newest)


def test_what_a_rollback_discards_may_be_sent_again(start_server: StartServer, workshop: Workshop) -> None:
    with start_server() as server, client_of(server.url) as http:
        phone = phone_with(http, "phone1", workshop.update(1))
        phone.send()
        http.post("/v1/rollback?round=0")
        assert server.coordinator.current.accepted == 0
        assert phone.head().status_code == 410
        assert phone.outcome().json()["state"] == "discarded"
        assert phone.send().status_code == 204
        assert server.coordinator.current.accepted == 1
        assert upload_update(server.url, workshop.update(2), "phone2").round_closed


TWO = settings_with(clients_per_round=2)
FAR = 131071.98  # 2^17, the farthest that fedatt takes, less what float32 may round up
LEAVES_FLOAT32 = "tensor embedding: the next model would overflow float32"


@pytest.fixture
def no_model(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(next_model, "write_model", raising(WeightsError(LEAVES_FLOAT32)))
    return monkeypatch


def test_updates_that_fedatt_accepts_can_be_averaged(workshop: Workshop, tmp_path: Path) -> None:
    """Two phones, each with one weight of another tensor as far from the base as an update may be."""
    base = load_tensors(workshop.base_path)
    names = list(base)[:2]
    with open_coordinator(
        workshop, tmp_path / "state", settings_with(clients_per_round=2, strategy="fedatt")
    ) as coordinator:
        for seed, name in enumerate(names):
            far = {other: weights.copy() for other, weights in base.items()}
            far[name].flat[0] = base[name].flat[0] + FAR
            receipt = send(coordinator, workshop.update(seed, trained=far), f"p{seed}")
        assert (receipt.round_closed, coordinator.current.round) == (True, 2)
        found = load_tensors(coordinator.folder.model(str(receipt.model_sha256)))
    for name in names:
        assert np.isclose(found[name].flat[0], base[name].flat[0] + 1.2 * FAR, rtol=1e-4)


# What may fail all the same


@pytest.mark.usefixtures("no_model")
def test_a_round_that_cannot_be_closed_fails_and_the_next_one_is_open(workshop: Workshop, state: Path) -> None:
    with open_coordinator(workshop, state, TWO) as coordinator:
        send(coordinator, workshop.update(1), "a")
        receipt = send(coordinator, workshop.update(2), "b")
        assert (receipt.round_closed, receipt.model_sha256, receipt.accepted) == (True, None, 2)
        current = coordinator.current
        assert (current.round, current.base_sha256, current.accepted) == (2, workshop.base_sha256, 0)
        assert len(file_names(state / "updates")) == 2
        # The same bytes are of today's model: they count again.
        assert send(coordinator, workshop.update(1, round=2), "a").round == 2
        assert send(coordinator, workshop.update(2), "b").round == 2
    with open_coordinator(workshop, state, TWO) as coordinator:  # and so after a restart
        assert coordinator.current.round == 3
    report = read_report(state)
    assert [(entry["ending"], entry["reason"]) for entry in report["rounds"]] == [
        ("failed", LEAVES_FLOAT32),
        ("failed", LEAVES_FLOAT32),
        (None, None),
    ]
    assert [row["model"] for row in report_rows(report)] == ["failed", "failed", "open"]
    first = report["rounds"][0]
    assert (first["accepted"], first["rejected"], first["useful_bytes"]) == (0, 2, 0)


def test_a_bug_in_a_close_fails_the_round_and_shows_its_traceback(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(next_model, "write_model", raising(ZeroDivisionError("division by zero")))
    with open_coordinator(workshop, tmp_path / "state", settings_with(clients_per_round=1)) as coordinator:
        send(coordinator, workshop.update(1), "a")
        assert coordinator.current.round == 2
    (failed,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    text = "round 1 failed, its updates are kept: ZeroDivisionError: division by zero; delete them with: phonograd"
    assert text in failed.getMessage()
    assert failed.exc_info is not None


def test_a_server_goes_on_after_a_failed_round(
    start_server: StartServer, workshop: Workshop, no_model: pytest.MonkeyPatch
) -> None:
    with start_server() as server, client_of(server.url) as http:
        assert post(http, workshop.update(1), "p1").status_code == 201
        check_problem(post(http, workshop.update(2), "p2"), 410, "the upload is kept: round 1 failed")
        page = http.get("/dashboard/rounds/1").text
        assert "The round failed: tensor embedding: the next model would overflow float32" in page
        assert 'badge bad">failed' in http.get("/dashboard/rounds").text
        assert 'phonograd_rounds_closed_total{ending="failed"} 1.0' in http.get("/metrics").text
        no_model.undo()
        again = [receipt(http, post(http, workshop.update(seed, 2), f"p{seed}")) for seed in (1, 2)]
        assert again[-1]["model_sha256"] == server.coordinator.current.base_sha256 != workshop.base_sha256

        assert http.post("/v1/discard?round=1").json() == {"round": 1, "discarded": 2}
        check_problem(http.post("/v1/discard?round=2"), 404, "round 2: expected a failed round")
        check_problem(http.post("/v1/rollback?round=1"), 404, "round 1: expected a closed round with a model")
        assert file_names(server.state / "updates") == set()
        rounds = final_report(server)["rounds"]
    assert all(adds_up(entry) for entry in rounds)


@pytest.mark.usefixtures("known_draws", "no_model")
def test_a_private_round_that_fails_has_spent_its_epsilon_and_its_key_is_gone(
    workshop: Workshop, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        budget, "privacy_spent", lambda rounds, delta: PrivacySpent(float(len(rounds)), 0.0, delta, len(rounds))
    )
    with private_coordinator(workshop, tmp_path / "state", clock) as coordinator:
        enrol(coordinator)
        for name in sorted(drawn_phones(coordinator)):
            send(coordinator, update_of(workshop, coordinator, name), name)
        end_round(coordinator, clock)
        assert coordinator.current.round == 2
        end_round(coordinator, clock)  # a round that nobody joined makes a model as well, of noise alone
        assert coordinator.current.round == 3
        keys = [path.name for path in (tmp_path / "state" / "noise").iterdir()]
        assert set(keys) <= {"3"}
    failed, after = read_report(tmp_path / "state")["rounds"][:2]
    assert failed["ending"] == "failed"
    assert (failed["epsilon"], after["epsilon"]) == (1.0, 2.0)


def test_too_many_open_files_are_no_reason_to_fail(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        try:
            raise OSError(24, "Too many open files")
        except OSError as error:
            raise WeightsError("update: cannot be opened: Too many open files") from error

    with open_coordinator(workshop, tmp_path / "state", settings_with(clients_per_round=1)) as coordinator:
        with monkeypatch.context() as patch:
            patch.setattr(next_model, "write_model", refuse)
            assert not send(coordinator, workshop.update(1), "a").round_closed
        coordinator.tick()
        assert (coordinator.current.round, read_report(tmp_path / "state")["rounds"][0]["ending"]) == (2, "full")


def test_a_stored_update_that_is_gone_fails_the_round(workshop: Workshop, state: Path) -> None:
    """No restart and no waiting brings it back."""
    with open_coordinator(workshop, state, settings_with(clients_per_round=2, strategy="median")) as coordinator:
        send(coordinator, workshop.update(1), "a")
        for path in (state / "updates").iterdir():
            path.unlink()
        assert send(coordinator, workshop.update(2), "b").round_closed
        assert coordinator.current.round == 2
    assert "cannot be opened: No such file" in read_report(state)["rounds"][0]["reason"]


# Without a server


def test_going_back_without_a_server(workshop: Workshop, tmp_path: Path) -> None:
    state, settings = tmp_path / "state", settings_with(clients_per_round=1, server_lr=0.5)
    with open_coordinator(workshop, state, settings) as coordinator:
        send(coordinator, workshop.update(1), "a")
        with pytest.raises(StorageError, match="another server uses this state folder; stop it"):
            offline.roll_back(state, 0, "operator:me")
    with pytest.raises(UnknownRoundError, match="round 7: expected a closed round with a model, or 0"):
        offline.roll_back(state, 7, "operator:me")
    (state / "updates" / "damaged").write_bytes(b"what keeps a server from starting")
    assert offline.roll_back(state, 0, "operator:me") == {"round": 3, "base_sha256": workshop.base_sha256}
    with open_coordinator(workshop, state, settings) as coordinator:
        assert (coordinator.current.round, coordinator.current.base_sha256) == (3, workshop.base_sha256)
    rounds = read_report(state)["rounds"]
    assert [(entry["ending"], entry["rolled_back"]) for entry in rounds] == [
        ("full", True), ("rollback", True), (None, False),
    ]  # fmt: skip


def test_reports_and_an_operator_s_deeds_are_only_for_a_state_folder(tmp_path: Path) -> None:
    for deed in (
        read_report,
        lambda state: offline.roll_back(state, 1, "me"),
        lambda state: offline.discard(state, 1, "me"),
    ):
        with pytest.raises(StorageError, match="no ledger found; expected the state folder"):
            deed(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("no_model")
def test_kept_updates_are_discarded_without_a_server(workshop: Workshop, state: Path) -> None:
    with open_coordinator(workshop, state, settings_with(clients_per_round=1)) as coordinator:
        send(coordinator, workshop.update(1), "a")
        send(coordinator, workshop.update(2), "b")
    assert len(file_names(state / "updates")) == 2
    assert offline.discard(state, 1, "operator:me") == 1
    assert len(file_names(state / "updates")) == 1
    assert offline.discard(state, 2, "operator:me") == 1
    assert file_names(state / "updates") == set()
    assert offline.discard(state, 2, "operator:me") == 0
    Coordinator(workshop.artifacts, state, TWO).close()
