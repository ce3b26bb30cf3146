"""A closing round over HTTP: what phones are told, how our client waits, what an operator sees."""

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from phonograd.android_harness.rounds import round_end
from phonograd.android_harness.rounds.round_end import RoundEnd, wait_for_end
from phonograd.api import rounds as api_rounds
from phonograd.device_runtime.base.errors import ServerRefusedError
from phonograd.device_runtime.client import connection
from phonograd.device_runtime.client.connection import RetryPolicy
from phonograd.device_runtime.client.server_client import current_round, open_round, upload_update
from tests.server_agg.slow_models import Work
from tests.server_agg.test_app import check_problem, post, receipt
from tests.server_agg.test_openapi import Checked
from tests.server_agg.tus_phone import TusPhone
from tests.server_agg.workshop import RunningServer, Workshop, run_server
from tests.support.waiting import until


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


def test_phones_are_told_to_come_again(http: httpx.Client, workshop: Workshop, server: RunningServer) -> None:
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
    assert report["rounds"][0]["closing_at"] is not None
    work.allow(2)
    until(lambda: server.coordinator.current.round == 2, "the next round")
    metrics = http.get("/metrics").text
    assert "phonograd_round_closing 0.0" in metrics
    assert ">open</span>" in http.get("/dashboard/live").text
