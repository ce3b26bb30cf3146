"""A round whose model takes minutes is `closing` meanwhile: nothing waits for it or is lost, and all are told."""

import shutil
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from phonograd.android_harness.rounds import round_end
from phonograd.android_harness.rounds.round_end import RoundEnd, wait_for_end
from phonograd.api import rounds as api_rounds
from phonograd.device_runtime.base.errors import ServerRefusedError, StorageError, WeightsError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.client import connection
from phonograd.device_runtime.client.connection import RetryPolicy
from phonograd.device_runtime.client.server_client import current_round, open_round, upload_update
from phonograd.server_agg.refusals import UnknownRoundError
from phonograd.server_agg.report.document import read_report
from phonograd.server_agg.report.text import report_rows
from phonograd.server_agg.rounds import offline
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.rounds.uploads import UploadMetadata
from tests.server_agg.checked_answers import Checked
from tests.server_agg.coordinators import file_names, open_coordinator, send
from tests.server_agg.http_uploads import check_problem, post, receipt
from tests.server_agg.slow_models import PARTS, Work, free_work, model_after, send_two
from tests.server_agg.tus_phone import TusPhone
from tests.server_agg.workshop import Clock, RunningServer, Workshop, run_server, settings_with
from tests.support.waiting import until


def slow_coordinator(
    workshop: Workshop, state: Path, work: Work, clock: Clock | None = None, **changes: object
) -> AbstractContextManager[Coordinator]:
    settings = settings_with(**{"strategy": "transfer", "clients_per_round": 2} | changes)
    return open_coordinator(workshop, state, settings, clock, work)


def calm_model(workshop: Workshop, state: Path) -> str:
    """The round's model when nothing goes wrong."""
    with slow_coordinator(workshop, state, free_work()) as coordinator:
        send_two(workshop, coordinator)
        return model_after(coordinator)


def until_closed(coordinator: Coordinator, number: int) -> None:
    """Tick until round `number` is open."""

    def is_open() -> bool:
        coordinator.tick()
        return coordinator.current.round == number

    until(is_open, f"round {number}")


# While it closes


def test_the_last_receipt_does_not_wait_for_the_model(workshop: Workshop, tmp_path: Path, work: Work) -> None:
    with slow_coordinator(workshop, tmp_path / "state", work) as coordinator:
        assert coordinator.current.closing is None
        send(coordinator, workshop.update(1), "a")
        receipt = send(coordinator, workshop.update(2), "b")
        assert (receipt.accepted, receipt.round_closed, receipt.model_sha256) == (2, False, None)
        current = coordinator.current
        assert (current.round, current.base_sha256, current.accepted) == (1, workshop.base_sha256, 2)
        assert current.closing is not None
        work.allow()
        model = model_after(coordinator)
        assert coordinator.current.closing is None
        assert sha256_of_file(coordinator.folder.model(model)) == model != workshop.base_sha256
        assert file_names(tmp_path / "state" / "closing") == file_names(tmp_path / "state" / "updates") == set()
        assert send(coordinator, workshop.update(2), "b").model_sha256 == model  # the receipt of the same update
    rounds = read_report(tmp_path / "state")["rounds"]
    assert [(entry["ending"], entry["model_sha256"]) for entry in rounds] == [("full", model), (None, None)]


def test_a_deadline_closes_slowly_too(workshop: Workshop, tmp_path: Path, clock: Clock, work: Work) -> None:
    with slow_coordinator(workshop, tmp_path / "state", work, clock, deadline_seconds=60) as coordinator:
        send(coordinator, workshop.update(1), "a")
        clock.now += 61
        coordinator.tick()
        assert coordinator.current.closing is not None
        assert coordinator.current.closing.since == clock.now
        coordinator.tick()
        work.allow()
        model_after(coordinator)
        assert work.jobs == 1
    assert read_report(tmp_path / "state")["rounds"][0]["ending"] == "deadline"


def test_progress_says_when_to_come_again(workshop: Workshop, tmp_path: Path, clock: Clock, work: Work) -> None:
    with slow_coordinator(workshop, tmp_path / "state", work, clock, retry_seconds=9) as coordinator:
        work.at_part = lambda part: setattr(clock, "now", clock.now + 30)
        send_two(workshop, coordinator)
        assert coordinator.round.retry_seconds == 9
        work.allow(1)
        until(lambda: coordinator.round.retry_seconds == 90, "an estimate")
        closing = coordinator.current.closing
        assert closing is not None
        assert (closing.share, closing.seconds_left) == (0.25, 90)
        work.allow(2)
        until(lambda: coordinator.round.retry_seconds == 30, "a later estimate")
        work.allow(1)
        model_after(coordinator)
        assert coordinator.round.retry_seconds == 9


# Ends that come too early


@pytest.mark.parametrize("parts", [0, 2, PARTS])
def test_a_stop_at_any_part_goes_on_there_with_the_same_model(parts: int, workshop: Workshop, tmp_path: Path) -> None:
    work, state = Work(), tmp_path / "state"
    work.allow(parts)
    with slow_coordinator(workshop, state, work) as coordinator:
        send_two(workshop, coordinator)
        until(lambda: work.parts == parts)
    # Other settings are for the next round.
    with slow_coordinator(workshop, state, work, strategy="fedavg", clients_per_round=5) as coordinator:
        if parts < PARTS:
            current = coordinator.current
            assert (current.round, current.strategy, current.closing is None) == (1, "transfer", False)
        work.allow(PARTS - parts)
        assert model_after(coordinator) == calm_model(workshop, tmp_path / "calm")
        assert (coordinator.current.strategy, coordinator.current.clients_per_round) == ("fedavg", 5)
    assert work.parts == PARTS  # none was made twice


def test_an_upload_that_is_complete_at_the_restart_waits_for_its_phone(workshop: Workshop, state: Path) -> None:
    work = Work()
    with slow_coordinator(workshop, state, work, late="next") as coordinator:
        update = workshop.update(3)
        late = coordinator.create_upload(UploadMetadata("c", update.stat().st_size))
        shutil.copy(update, coordinator.folder.upload(late.id))
        send_two(workshop, coordinator)
    with slow_coordinator(workshop, state, work, late="next") as coordinator:
        found = coordinator.uploads.find(late.id)
        assert found is not None
        assert (found.state, found.complete) == ("receiving", True)
        work.allow()
        model_after(coordinator)
        assert coordinator.ingest(late.id, sha256_of_file(update), 0).round == 2


def test_a_model_that_cannot_be_made_fails_the_round(workshop: Workshop, state: Path, work: Work) -> None:
    work.errors = [WeightsError("update abc: not finite")]
    with slow_coordinator(workshop, state, work) as coordinator:
        send_two(workshop, coordinator)
        assert model_after(coordinator) == workshop.base_sha256
        assert file_names(state / "closing") == set()
        assert len(file_names(state / "updates")) == 2
        work.allow()
        send_two(workshop, coordinator)  # they are of today's model: they count again
        assert model_after(coordinator, 2) != workshop.base_sha256
        assert coordinator.discard(1) == 2
    first, second, _ = read_report(state)["rounds"]
    assert (first["ending"], first["reason"]) == ("failed", "update abc: not finite")
    assert second["ending"] == "full"


def test_after_a_disk_error_the_next_tick_tries_again(
    workshop: Workshop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    work = Work()
    work.errors = [StorageError("no space left"), OSError(28, "No space left on device")]
    work.allow()
    with slow_coordinator(workshop, tmp_path / "state", work) as coordinator:
        send_two(workshop, coordinator)

        until_closed(coordinator, 2)
        assert coordinator.current.base_sha256 == calm_model(workshop, tmp_path / "calm")
    assert work.jobs == 3
    assert "round 1 cannot be closed, retrying: no space left" in caplog.text


def test_a_rollback_stops_the_work(workshop: Workshop, state: Path, work: Work) -> None:
    with slow_coordinator(workshop, state, work) as coordinator:
        send_two(workshop, coordinator)
        with pytest.raises(UnknownRoundError):
            coordinator.rollback(7)
        with pytest.raises(UnknownRoundError, match="round 1: expected a failed round"):
            coordinator.discard(1)
        assert coordinator.current.closing is not None
        current = coordinator.rollback(0)
        assert (current.round, current.closing, current.accepted) == (2, None, 0)
        work.allow()
        base = workshop.base_path
        send(coordinator, workshop.update(1, 2, base=base), "a")
        send(coordinator, workshop.update(2, 2, base=base), "b")

        until_closed(coordinator, 3)  # the new work waits until the old has stopped
    assert [entry["ending"] for entry in read_report(state)["rounds"]] == ["rollback", "full", None]
    assert file_names(state / "closing") == set()


def test_a_model_that_is_ready_when_its_round_is_rolled_back_ends_no_other(
    workshop: Workshop, state: Path, work: Work
) -> None:
    with slow_coordinator(workshop, state, work) as coordinator:
        work.at_part = lambda part: coordinator.rollback(0) if part == PARTS - 1 else None
        work.allow()
        send_two(workshop, coordinator)
        until(lambda: not coordinator.round.slow.busy, "the end of the work")
        assert (coordinator.current.round, coordinator.current.base_sha256) == (2, workshop.base_sha256)


def test_a_rollback_without_a_server_ends_a_closing_round(workshop: Workshop, state: Path, work: Work) -> None:
    with slow_coordinator(workshop, state, work) as coordinator:
        send_two(workshop, coordinator)
    assert offline.roll_back(state, 0, "operator:me") == {"round": 2, "base_sha256": workshop.base_sha256}
    with slow_coordinator(workshop, state, work) as coordinator:
        current = coordinator.current
        assert (current.round, current.strategy, current.closing) == (2, "transfer", None)
        assert file_names(state / "closing") == set()


@pytest.fixture
def server(workshop: Workshop, tmp_path: Path, work: Work) -> Iterator[RunningServer]:
    changes = {"strategy": "transfer", "late": "next", "retry_seconds": 11.5}
    with run_server(workshop, tmp_path / "state", work, **changes) as running:
        yield running


@pytest.fixture
def waits(server: RunningServer, work: Work, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds of each wait of our client. The first lets the round close."""
    seconds: list[float] = []

    def sleep(told: float) -> None:
        seconds.append(told)
        work.allow()
        until(lambda: server.coordinator.current.closing is None, "the next round")

    monkeypatch.setattr(connection, "time", SimpleNamespace(sleep=sleep))
    return seconds


def close_slowly(http: httpx.Client, workshop: Workshop) -> None:
    for seed, phone in enumerate("ab", 1):
        assert post(http, workshop.update(seed), phone).status_code == 201


def test_a_closing_round_takes_no_more_updates_and_phones_are_told_to_come_again(
    http: httpx.Client, workshop: Workshop, server: RunningServer, work: Work
) -> None:
    begun = TusPhone(http, "c", workshop.update(3).read_bytes())
    begun.create_upload()
    begun.patch(0, begun.data[:100])
    close_slowly(http, workshop)

    checked = Checked(http)
    told = checked.ask("GET", "/v1/round")
    assert told.headers["Retry-After"] == "12"
    assert set(told.json()["closing"]) == {"since", "share", "seconds_left"}
    assert checked.ask("GET", "/v1/report").status_code == 200
    asked = http.get("/v1/round", headers={"Phonograd-Phone": "d"})
    assert (asked.headers["Retry-After"], asked.json()["participate"]) == ("12", False)
    assert "round 1: closing" in asked.json()["reason"]

    for answer in (post(http, workshop.update(4), "d"), begun.patch(100, begun.data[100:])):
        check_problem(answer, 503, "round 1: closing, the server trains its model; come again in 12 s")
        assert answer.headers["Retry-After"] == "12"
    announced = {"Tus-Resumable": "1.0.0", "Upload-Length": "9", "Phonograd-Phone": "d"}
    assert checked.ask("POST", "/v1/uploads", headers=announced).status_code == 503
    assert begun.head().headers["Upload-Offset"] == str(len(begun.data))
    assert receipt(http, post(http, workshop.update(1), "a"))["accepted"] == 2
    assert http.get("/healthz").status_code == 200
    assert http.get("/v1/model").headers["etag"] == f'"{workshop.base_sha256}"'
    assert TusPhone(http, "a", b"another update").create_upload().status_code == 409
    work.allow()
    until(lambda: server.coordinator.current.round == 2, "the next round")
    assert begun.patch(len(begun.data), b"").status_code == 204  # its bytes need not be sent again
    assert begun.outcome().json()["receipt"]["round"] == 2


def test_our_upload_waits_as_told(
    http: httpx.Client, workshop: Workshop, server: RunningServer, waits: list[float]
) -> None:
    close_slowly(http, workshop)
    receipt = upload_update(server.url, workshop.update(3), "c")
    assert (receipt.round, receipt.accepted, waits) == (2, 1, [12])


def test_our_upload_does_not_wait_for_ever(
    http: httpx.Client, workshop: Workshop, server: RunningServer, waits: list[float]
) -> None:
    close_slowly(http, workshop)
    with pytest.raises(ServerRefusedError, match="round 1: closing") as caught:
        upload_update(server.url, workshop.update(3), "c", retry=RetryPolicy(closing_seconds=11))
    assert (caught.value.status, caught.value.retry_seconds, waits) == (503, 12, [])
    with pytest.raises(ServerRefusedError, match="round 1 is still closing; come again later"):
        open_round(server.url, RetryPolicy(closing_seconds=11))


def test_joining_waits_for_the_next_round(
    http: httpx.Client,
    workshop: Workshop,
    server: RunningServer,
    waits: list[float],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(api_rounds, "cache_folder", lambda: tmp_path / "cache")
    assert current_round(server.url).closing_seconds is None
    close_slowly(http, workshop)
    assert current_round(server.url).closing_seconds == 12
    told: list[tuple[int, float]] = []
    joined = api_rounds.join_round(server.url, workshop.artifacts, "c", waiting=lambda *of: told.append(of))
    assert (joined.opened.round, told, waits) == (2, [(1, 12)], [12])


def test_the_harness_waits_longer_for_a_closing_round(
    http: httpx.Client, workshop: Workshop, server: RunningServer, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    close_slowly(http, workshop)
    assert wait_for_end(server.url, 1, [], 0, lambda: 0) == RoundEnd(False, None)
    polls: list[float] = []

    def sleep(seconds: float) -> None:
        polls.append(seconds)
        if len(polls) == 3:
            work.allow()
            until(lambda: server.coordinator.current.round == 2, "the next round")

    monkeypatch.setattr(round_end, "time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))
    ending = wait_for_end(server.url, 1, [], 1e-9, lambda: 0)
    assert (ending, len(polls)) == (RoundEnd(True, server.coordinator.current.base_sha256), 3)


def test_an_operator_sees_the_progress(
    http: httpx.Client, workshop: Workshop, server: RunningServer, work: Work, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    close_slowly(http, workshop)
    work.allow(2)
    until(lambda: "round 1 is closing: 50 % of the work is done" in caplog.text, "the log")
    metrics = http.get("/metrics").text
    assert "phonograd_round_closing 1.0" in metrics
    assert "phonograd_round_closing_share 0.5" in metrics
    live = http.get("/dashboard/live").text
    assert ">closing</span>" in live
    assert ">50 %</progress>" in live
    assert ">closing</span>" in http.get("/dashboard/rounds").text
    assert "Closing since (UTC)" in http.get("/dashboard/rounds/1").text
    report = http.get("/v1/report").json()
    (entry,) = report["rounds"]
    assert (entry["closing_at"] > 0, entry["closed_at"], entry["ending"]) == (True, None, None)
    assert report_rows(report)[0]["model"] == "closing"
    work.allow(2)
    until(lambda: server.coordinator.current.round == 2, "the next round")
    metrics = http.get("/metrics").text
    assert "phonograd_round_closing 0.0" in metrics
    assert ">open</span>" in http.get("/dashboard/live").text
