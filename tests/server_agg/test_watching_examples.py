"""examples/watching asks for what a server's /metrics has, and starts it by options that it has."""

import itertools
import shlex
from pathlib import Path
from typing import Any

import pytest

from phonograd.commands.server import serve
from phonograd.device_runtime.base.errors import StorageError
from phonograd.device_runtime.client.server_client import report_quality
from phonograd.server_agg.rounds.live_round import LiveRound
from tests.server_agg.faults import raising
from tests.server_agg.metrics import Samples, scrape, some_work, spend
from tests.server_agg.workshop import Clock, RunningServer, StartServer, client_of
from tests.support.command_line import Run, phono
from tests.support.waiting import until
from tests.support.watching_examples import (
    FOLDER,
    OF_PROMETHEUS,
    dashboard,
    metrics_in,
    panel_expressions,
    rules,
    selectors_in,
)

__all__ = ["phono"]


def test_the_names_of_an_expression() -> None:
    expression = (
        'sum by (a) (rate(x_total{a="b",c=~"d"}[5m])) / on (e) y > 1e9 or absent(up{f!="x{"}) unless z offset 1d'
    )
    assert metrics_in(expression) == {"x_total", "y", "up", "z"}
    assert selectors_in(expression) == {("x_total", "a"), ("x_total", "c"), ("up", "f")}


@pytest.fixture
def everything(start_server: StartServer) -> Samples:
    """The metrics of a server that has all of them."""
    with start_server(deadline_seconds=1e6) as server, client_of(server.url) as http:
        some_work(server, http)
        report_quality(server.owner, server.coordinator.current.base_sha256, "perplexity", 109.1)
        spend(server, epsilon=4.6, budget=5.0)
        return scrape(server.url)[0]


def test_every_metric_and_label_is_one_of_a_servers(everything: Samples) -> None:
    labels = {name: {label for label, _ in given} for name, given in everything}
    labels["up"] = set()  # Prometheus's own
    alerts = [rule["expr"] for rule in rules()]
    assert len(alerts) > 5
    assert len(panel_expressions()) > 20
    variables = [entry["definition"] for entry in dashboard()["templating"]["list"] if entry["type"] == "query"]
    assert [*variables] == ["label_values(phonograd_round, job)"]
    for expression in (*alerts, *panel_expressions(), "phonograd_round"):
        assert metrics_in(expression), expression
        assert metrics_in(expression) <= labels.keys(), expression
        for metric, label in selectors_in(expression):
            assert label in labels[metric] | OF_PROMETHEUS, expression
    assert everything["phonograd_epsilon_budget", ()] == 5.0
    endings = {dict(given)["ending"] for name, given in everything if name == "phonograd_rounds_closed_total"}
    assert endings == {"full", "deadline", "rollback", "failed"}  # also those that never happened


def test_how_long_a_round_is_open_and_due(start_server: StartServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with start_server(clients_per_round=1) as server, client_of(server.url) as http:
        coordinator, clock = server.coordinator, Clock()
        began = scrape(server.url)[0]["phonograd_round_opened_seconds", ()]
        assert abs(began - clock.now) < 1e5
        with monkeypatch.context() as patch:
            patch.setattr(coordinator.ledger, "clock", clock)
            patch.setattr(LiveRound, "close_round", raising(StorageError("the disk is full")))
            some_work(server, http)
            clock.now += 1000
            assert scrape(server.url)[0]["phonograd_round_due_seconds", ()] >= 999
        until(lambda: coordinator.current.round == 2, "the round that the disk refused")
        until(lambda: scrape(server.url)[0]["phonograd_round_due_seconds", ()] == 0)
        assert scrape(server.url)[0]["phonograd_round_opened_seconds", ()] > began


def test_the_dashboard_can_be_imported() -> None:
    document = dashboard()
    variables = {entry["name"]: entry for entry in document["templating"]["list"]}
    assert (variables["datasource"]["type"], variables["datasource"]["query"]) == ("datasource", "prometheus")
    source = {"type": "prometheus", "uid": "${datasource}"}
    panels = document["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert document["schemaVersion"] >= 39
    assert "id" not in document  # Grafana gives it one
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        assert panel["type"] in ("stat", "timeseries")
        assert all(part["datasource"] == source for part in (panel, *panel["targets"])), panel["title"]
        at = panel["gridPos"]
        cells = set(itertools.product(range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])))
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    assert variables["job"]["datasource"] == source


def test_the_unit_starts_a_server_by_options_that_it_has(tmp_path: Path) -> None:
    text = (FOLDER / "phonograd.service").read_text("utf-8").replace("\\\n", " ")
    (line,) = (line for line in text.splitlines() if line.startswith("ExecStart="))
    program, command, *options = shlex.split(line.removeprefix("ExecStart="))
    assert (Path(program).name, command) == ("phonograd", "serve")
    options[options.index("--artifacts") + 1] = str(tmp_path)
    given = serve.make_context("serve", options).params
    assert given["state"] == Path("/var/lib/phonograd/state")  # in StateDirectory
    assert given["as_json"]
    assert "StandardOutput=null" in text.splitlines()


def test_with_json_the_dashboards_link_is_on_stdout_alone(
    server: RunningServer, phono: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def start(artifacts: Path, state: Path, settings: Any, ready: Any) -> None:
        ready(server, server.coordinator.current)

    monkeypatch.setattr("phonograd.api.serving.serve", start)
    monkeypatch.setattr("phonograd.commands.server.configure", lambda *_: None)
    options = ("--artifacts", server.workshop.artifacts.folder, "--state", tmp_path / "other")
    told, kept = phono("serve", *options), phono("serve", *options, "--json")
    assert server.admin_url in told.err
    assert kept.document["admin_url"] == server.admin_url
    assert f"{server.url}: round 1, fedavg, 2 phones, no deadline, model " in kept.err
    assert server.admin_url not in kept.err


def test_with_json_lines_the_error_that_ends_a_start_is_one(
    phono: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("phonograd.commands.server.configure", lambda *_: None)
    monkeypatch.setattr("phonograd.api.serving.serve", raising(StorageError("the `store` is away")))
    ended = phono("serve", "--artifacts", FOLDER, "--state", tmp_path / "state", "--log-format", "json")
    assert (ended.code, ended.err, caplog.messages) == (11, "", ["the server.store is away"])
