"""A server's metrics, and the work that they count."""

import json
import sqlite3
from contextlib import closing

import httpx
from prometheus_client.parser import text_string_to_metric_families

from phonograd.server_agg.rounds.uploads import UploadMetadata
from tests.server_agg.http_uploads import post
from tests.server_agg.workshop import RunningServer, client_of
from tests.support.waiting import until

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scrape(url: str) -> tuple[Samples, dict[str, str]]:
    """All samples by name and labels, and the kind of each metric, read by Prometheus's own parser."""
    with client_of(url) as http:
        answer = http.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = list(text_string_to_metric_families(answer.text))
    assert all(family.documentation for family in families)
    samples = [sample for family in families for sample in family.samples]
    found = {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in samples}
    assert len(found) == len(samples)
    return found, {family.name: family.type for family in families}


def some_work(server: RunningServer, http: httpx.Client) -> None:
    """A round and a half, with what goes wrong on the way."""
    workshop = server.workshop
    http.get("/v1/model", headers={"Phonograd-Phone": "phone1"})
    post(http, workshop.update(1), "phone1")
    post(http, workshop.update(1), "phone1")
    post(http, workshop.update(3, round=7), "phone3")
    post(http, workshop.update(2, codec="rows-f32"), "phone2")
    server.coordinator.create_upload(UploadMetadata("phone9", 4096, "0" * 64))

    def is_counted() -> bool:
        server.coordinator.ledger.flush()
        return requests_counted(server) == 5

    until(is_counted, "the traffic of five requests")


def requests_counted(server: RunningServer) -> int:
    with closing(sqlite3.connect(server.state / "ledger.sqlite")) as ledger:
        return int(ledger.execute("SELECT SUM(requests) FROM traffic").fetchone()[0] or 0)


def spend(server: RunningServer, epsilon: float, budget: float) -> None:
    with closing(sqlite3.connect(server.state / "ledger.sqlite")) as ledger, ledger:
        ((text,),) = ledger.execute("SELECT strategy FROM rounds WHERE closed_at IS NULL")
        strategy = json.dumps(json.loads(text) | {"epsilon_budget": budget})
        ledger.execute("UPDATE rounds SET epsilon = ?, strategy = ?", (epsilon, strategy))
