"""Rounds that end early, late or not at all: over-selection, deadlines, late updates, rollback."""

import os
from pathlib import Path

import numpy as np
import pytest

from phonograd.device_runtime.client.server_client import upload_update
from phonograd.device_runtime.formats.tensor_file import load_tensors
from phonograd.server_agg.refusals import LateUpdateError, RoundFullError
from phonograd.server_agg.rounds.uploads import UploadMetadata
from tests.server_agg.test_app import StartServer, check_problem, post, receipt
from tests.server_agg.test_report import final_report
from tests.server_agg.test_rounds import opened, send
from tests.server_agg.tus_phone import announced, phone_with
from tests.server_agg.workshop import Clock, Workshop, client_of, settings_with


@pytest.fixture
def clock() -> Clock:
    return Clock()


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
    with opened(workshop, tmp_path / "state", settings, clock) as coordinator:
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
    with opened(workshop, tmp_path / "state", settings, clock) as coordinator:
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
    with opened(workshop, tmp_path / "state", settings, clock) as coordinator:
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
    with opened(workshop, tmp_path / "state", settings) as coordinator:
        send(coordinator, workshop.update(1), "a")
        base = coordinator.folder.model(coordinator.current.base_sha256)  # the exported one is kept for good
        in_time, late = (workshop.update(phone, 2, base=base) for phone in (2, 3))
        send(coordinator, in_time, "b")
        with pytest.raises(LateUpdateError, match="is of round 2, whose model file was deleted"):
            send(coordinator, late, "c")


def test_a_late_update_of_a_round_that_was_undone_is_dropped(workshop: Workshop, tmp_path: Path) -> None:
    with opened(workshop, tmp_path / "state", settings_with(clients_per_round=1, late="next")) as coordinator:
        bad = coordinator.folder.model(str(send(coordinator, workshop.update(1), "a").model_sha256))
        coordinator.rollback(0)
        with pytest.raises(LateUpdateError, match="is of round 2, which is closed"):
            send(coordinator, workshop.update(2, 2, base=bad), "b")


def test_the_model_of_a_late_update_is_kept_as_long_as_it_is_needed(workshop: Workshop, state: Path) -> None:
    with opened(workshop, state, settings_with(clients_per_round=1, late="next")) as coordinator:
        send(coordinator, workshop.update(1), "a")
    models = []
    for kept in (None, 1):
        settings = settings_with(clients_per_round=2, late="next", models_kept=kept)
        with opened(workshop, state, settings) as coordinator:
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
