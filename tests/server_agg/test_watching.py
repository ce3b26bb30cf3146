"""What programs watch a server by: /metrics, /healthz, log lines; and the figures that evaluators report."""

import io
import json
import logging
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from phonograd import __version__
from phonograd.device_runtime.base.errors import ServerRefusedError, StorageError
from phonograd.device_runtime.client.owner_file import operator_name
from phonograd.device_runtime.client.server_client import report_quality
from phonograd.server_agg.http.monitoring import BUCKETS
from phonograd.server_agg.log_format import JsonFormatter, configure, event
from phonograd.server_agg.report.document import read_report
from tests.server_agg.faults import raising
from tests.server_agg.http_uploads import check_problem, post
from tests.server_agg.metrics import Samples, scrape, some_work, spend
from tests.server_agg.workshop import RunningServer, StartServer, Workshop, client_of, run_server, small_workshop
from tests.support.waiting import until


def test_metrics_say_what_the_report_says(server: RunningServer, http: httpx.Client) -> None:
    some_work(server, http)
    totals = read_report(server.state)["totals"]
    samples, kinds = scrape(server.url)

    def sum_of(name: str, **labels: str) -> float:
        wanted = set(labels.items())
        return sum(value for (found, given), value in samples.items() if found == name and wanted <= set(given))

    wire = "phonograd_wire_bytes_total"
    assert sum_of(wire, kind="upload", direction="up", part="body") == totals["up_body_bytes"]
    assert sum_of(wire, direction="up", part="header") == totals["up_header_bytes"]
    assert sum_of(wire, direction="down", part="body") == totals["down_body_bytes"]
    assert sum_of(wire, direction="down", part="header") == totals["down_header_bytes"]
    assert sum_of(wire, kind="model", direction="down", part="body") == totals["model_bytes"]
    assert sum_of("phonograd_wire_requests_total") == totals["requests"]
    assert sum_of("phonograd_upload_starts_total") == totals["upload_starts"]
    for outcome in ("useful", "retried", "rejected", "late", "unfinished"):
        assert sum_of("phonograd_update_bytes", outcome=outcome) == totals[f"{outcome}_bytes"]
    states = {"accepted": 2, "rejected": 1, "receiving": 1}
    assert {state: sum_of("phonograd_updates", state=state) for state in states} == states
    assert sum_of("phonograd_rounds_closed_total", ending="full") == 1
    assert sum_of("phonograd_accepted_bytes") == totals["useful_bytes"]
    plain = {name: value for (name, labels), value in samples.items() if not labels}
    assert (plain["phonograd_round"], plain["phonograd_round_accepted"], plain["phonograd_round_needed"]) == (2, 0, 2)
    assert (plain["phonograd_uploads_under_way"], plain["phonograd_uploads_missing_bytes"]) == (1, 4096)
    assert plain["phonograd_model_bytes"] == server.coordinator.current.model_bytes
    assert plain["phonograd_state_free_bytes"] > 1 << 20
    assert 1 << 20 < plain["process_resident_memory_bytes"] < 1 << 40
    assert plain["process_open_fds"] < plain["process_max_fds"]
    assert samples["phonograd_build_info", (("version", __version__),)] == 1
    assert "phonograd_epsilon" not in plain
    assert kinds["phonograd_wire_bytes"] == kinds["phonograd_rounds_closed"] == "counter"
    assert kinds["phonograd_updates"] == "gauge"
    assert kinds["phonograd_http_request_seconds"] == "histogram"


def test_the_page_lists_every_metric(start_server: StartServer) -> None:
    with start_server(deadline_seconds=1e6) as server, client_of(server.url) as http:
        some_work(server, http)
        report_quality(server.owner, server.coordinator.current.base_sha256, 'perplexity "g\\', 109.1)
        spend(server, epsilon=4.634, budget=5.0)
        samples, kinds = scrape(server.url)
    assert samples["phonograd_epsilon", ()] == 4.634
    assert samples["phonograd_quality", (("metric", 'perplexity "g\\'),)] == 109.1
    names = {f"{name}_total" if kind == "counter" else name for name, kind in kinds.items()}
    page = (Path(__file__).parents[2] / "docs/watching.md").read_text("utf-8")
    assert set(re.findall(r"`((?:phonograd|process)_\w+)`", page)) == names


def test_counters_outlive_the_server(start_server: StartServer) -> None:
    with start_server() as server, client_of(server.url) as http:
        some_work(server, http)
        before, kinds = scrape(server.url)
    with start_server() as server:
        after, _ = scrape(server.url)
    ours = [key for key in before if key[0].startswith("phonograd_")]
    counters = [key for key in ours if kinds.get(key[0].removesuffix("_total")) == "counter"]
    assert len(counters) > 8
    # The last of TCP's bytes are known when a connection ends, which may be after the first scrape.
    exact = [key for key in counters if key[0] != "phonograd_tcp_bytes_total"]
    assert {key: after[key] for key in exact} == {key: before[key] for key in exact}
    assert all(after[key] >= before[key] for key in counters)
    assert not [key for key in after if key[0] == "phonograd_http_request_seconds_count"]


def test_what_was_counted_last_is_written_down_at_the_end(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("phonograd.server_agg.server.TICK_SECONDS", 1e6)  # not before
    with start_server() as server, client_of(server.url) as http:
        http.get("/v1/round", headers={"Phonograd-Phone": "phone1"})
    totals = read_report(server.state)["totals"]
    assert (totals["requests"], totals["up_header_bytes"] > 50, totals["down_body_bytes"] > 50) == (1, True, True)


def test_requests_are_counted_by_route_method_and_status(server: RunningServer, http: httpx.Client) -> None:
    for number in range(5):
        http.get(f"/v1/models/{number:064x}")
        http.get(f"/nothing/{number}")
        http.request(f"ODD{number}", "/v1/round")
    http.get("/v1/round")
    http.get("/v1/round", headers={"Host": "evil.example"})
    samples: Samples = {}

    def counts() -> dict[tuple[str, str, str], float]:
        samples.clear()
        samples.update(scrape(server.url)[0])
        name = "phonograd_http_request_seconds_count"
        given = [(dict(labels), value) for (metric, labels), value in samples.items() if metric == name]
        return {
            (labels["method"], labels["route"], labels["status"]): value
            for labels, value in given
            if labels["route"] != "/metrics"
        }

    expected = {
        ("GET", "/v1/models/{sha256}", "404"): 5,
        ("GET", "unmatched", "404"): 5,
        ("other", "/v1/round", "405"): 5,
        ("GET", "/v1/round", "200"): 1,
        ("GET", "/v1/round", "403"): 1,
    }
    until(lambda: counts() == expected)
    buckets = [dict(labels) for name, labels in samples if name == "phonograd_http_request_seconds_bucket"]
    limits = [labels["le"] for labels in buckets if labels["route"] == "unmatched"]
    assert limits == [*map(str, BUCKETS), "+Inf"]


def test_healthy(server: RunningServer, http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (http.get("/healthz").status_code, http.get("/healthz").json()) == (200, {"status": "ok"})

    def unhealthy(detail: str) -> None:
        answer = http.get("/healthz")
        check_problem(answer, 503, detail)
        assert str(server.state) not in answer.text
        assert (http.get("/livez").status_code, http.get("/livez").json()) == (200, {"status": "ok"})

    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(9, 9, 0))
    unhealthy("the disk has no room for another model; free space")
    monkeypatch.undo()
    with closing(sqlite3.connect(server.state / "ledger.sqlite")) as ledger, ledger:
        ledger.execute("UPDATE rounds SET closed_at = 1")
    unhealthy("no round is open")
    with closing(sqlite3.connect(server.state / "ledger.sqlite")) as ledger, ledger:
        ledger.execute("UPDATE rounds SET closed_at = NULL")
    assert http.get("/healthz").status_code == 200

    def refuse() -> AbstractContextManager[Any]:
        raise StorageError(f"{server.state}: the ledger refused")

    monkeypatch.setattr(server.coordinator.ledger, "reading", refuse)
    unhealthy("the ledger does not answer")


def test_quality_is_taken_replaced_and_shown(server: RunningServer, http: httpx.Client) -> None:
    sha256 = server.coordinator.current.base_sha256
    for value in (200.5, 109):
        answer = http.post(f"/v1/models/{sha256}/quality", json={"metric": "perplexity general", "value": value})
        assert answer.status_code == 200
        taken = answer.json()
        assert taken.pop("reported_at") > 1.7e9
        assert taken == {"sha256": sha256, "metric": "perplexity general", "value": value}
    assert http.get("/v1/models").json()["models"][0]["quality"] == {"perplexity general": 109.0}
    with closing(sqlite3.connect(server.state / "ledger.sqlite")) as ledger:
        noted = ledger.execute("SELECT actor, action, subject, outcome, detail FROM audit").fetchall()
    who = (operator_name(), "quality", sha256, "done")
    assert noted == [(*who, "perplexity general: 200.5"), (*who, "perplexity general: 109")]


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A server that stays as it was, whatever it is asked."""
    folder = tmp_path_factory.mktemp("untouched")
    workshop = small_workshop(folder)
    with run_server(workshop, folder / "state") as server, client_of(server.url) as http:
        yield http


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b"", "metric: missing; see ModelQuality in /openapi.json"),
        (b'{"metric": "x", "value": NaN}', "holds NaN, which is no JSON number"),
        (b'{"metric": "x", "value": 1e400}', "value: expected a finite number, found inf"),
        (b'{"metric": "x", "value": 1e300}', "value: expected a number < 1e+300, found 1e+300"),
        (b'{"metric": "x", "value": 1' + b"0" * 400 + b"}", "value: expected a number between -1e+300 and 1e+300"),
        (b'{"metric": "x", "value": "1"}', "value: expected a number, found '1'"),
        (b'{"metric": "", "value": 1}', "1 to 64 printable"),
        (b'{"metric": "' + b"x" * 65 + b'", "value": 1}', "1 to 64 printable"),
        (b'{"metric": "\\ud800", "value": 1}', "1 to 64 printable"),
        (b'{"metric": "x\\n", "value": 1}', "1 to 64 printable"),
        (b"[" * 4000, "not JSON"),
    ],
)
def test_figures_that_are_none(untouched: httpx.Client, body: bytes, detail: str) -> None:
    (model,) = untouched.get("/v1/models").json()["models"]
    check_problem(untouched.post(f"/v1/models/{model['sha256']}/quality", content=body), 400, detail)
    assert untouched.get("/v1/models").json()["models"] == [{**model, "quality": {}}]


def test_figures_of_unknown_models_and_too_large_ones(server: RunningServer, http: httpx.Client) -> None:
    figure = {"metric": "x", "value": 1.0}
    check_problem(http.post(f"/v1/models/{'0' * 64}/quality", json=figure), 404, "is not one of this server's")
    large = http.post(f"/v1/models/{server.coordinator.current.base_sha256}/quality", content=b" " * 4097)
    check_problem(large, 413, "at most 4096")
    with pytest.raises(ServerRefusedError, match="404"):
        report_quality(server.owner, "0" * 64, "x", 1.0)


def test_a_long_or_foreign_metric_is_made_to_fit(server: RunningServer, http: httpx.Client) -> None:
    report_quality(server.owner, server.coordinator.current.base_sha256, "perplexity größe\n" + "x" * 99, 2.0)
    (name,) = http.get("/v1/models").json()["models"][0]["quality"]
    assert name.startswith("perplexity gr??e?xxx")
    assert len(name) == 64


def test_json_lines() -> None:
    stream = io.StringIO()
    log, handler = logging.getLogger("a test's own"), logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    log.info("round %d\nclosed", 3, extra=event("round_closed", round=3, model=None, path=Path("x")))
    log.warning("plain")
    try:
        raise ValueError("a bug")
    except ValueError:
        log.exception("went wrong")
    first, second, third = (json.loads(line) for line in stream.getvalue().splitlines())
    assert first.pop("time").endswith("Z")
    assert first == {
        "level": "info",
        "logger": "a test's own",
        "event": "round_closed",
        "message": "round 3\nclosed",
        "round": 3,
        "path": "x",
    }
    assert (second["level"], second["event"], second["message"]) == ("warning", "log", "plain")
    assert "ValueError: a bug" in third["traceback"]


def test_text_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    configure(stream, logging.INFO, "text")
    logging.getLogger("x").info("hello %s", "you", extra=event("greeting"))
    assert stream.getvalue().endswith(" INFO hello you\n")
    assert stream.getvalue().count("\n") == 1


def test_events_and_requests_carry_their_facts(
    server: RunningServer, workshop: Workshop, http: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="phonograd.server_agg")
    update = workshop.update(1)
    post(http, update, "phone1")
    post(http, workshop.update(3, round=7), "phone3")
    post(http, workshop.update(2), "phone2")
    http.get("/healthz")  # polled: not at this level

    def events(name: str) -> list[Any]:
        return [record for record in caplog.records if getattr(record, "event", "") == name]

    until(lambda: len(events("request")) == 3)
    accepted, _ = events("update_accepted")
    assert (accepted.round, accepted.phone, accepted.bytes) == (1, "phone1", update.stat().st_size)
    assert (accepted.accepted, accepted.needed) == (1, 2)
    (refused,) = events("request_refused")
    assert (refused.phone, refused.status) == ("phone3", 409)
    (closed,) = events("round_closed")
    assert (closed.round, closed.ending, closed.model) == (1, "full", server.coordinator.current.base_sha256)
    request, bad, _ = sorted(events("request"), key=lambda one: ("phone1", "phone3", "phone2").index(one.phone))
    assert (request.method, request.route, request.status, request.phone) == ("POST", "/v1/uploads", 201, "phone1")
    assert update.stat().st_size < request.bytes_up < update.stat().st_size + 1000
    assert request.bytes_down > 100
    assert 0 < request.seconds < 60
    assert bad.status == 409
    assert request.getMessage().startswith(f"POST /v1/uploads 201: {request.bytes_up} bytes up, ")


def test_a_bug_is_answered_without_its_traceback_and_counted(
    server: RunningServer, http: httpx.Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("phonograd.server_agg.http.report_routes.report_of", raising(RuntimeError("a bug")))
    answer = http.get("/v1/report")
    check_problem(answer, 500, "see the server's log")
    assert "a bug" not in answer.text
    until(lambda: "RuntimeError: a bug" in caplog.text)  # written after the answer
    key = ("phonograd_http_request_seconds_count", (("method", "GET"), ("route", "/v1/report"), ("status", "500")))
    until(lambda: scrape(server.url)[0].get(key) == 1)
