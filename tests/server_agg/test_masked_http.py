"""Masked rounds over HTTP: answers, refusals, and bytes by kind."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from phonograd.device_runtime.client.protocol import PHONE_HEADER
from phonograd.device_runtime.client.server_client import upload_update
from phonograd.server_agg.settings.masked import MaskedSettings
from tests.server_agg.faults import adds_up
from tests.server_agg.http_uploads import final_report
from tests.server_agg.masked_fleet import Fleet
from tests.server_agg.workshop import RunningServer, Workshop, client_of, run_server
from tests.support.waiting import until

MASKED = MaskedSettings(cohort=4, min_cohort=3, support=64, stage_seconds=600.0)
SIZES = {"clients_per_round": 4, "weighting": "equal", "masked": MASKED}


@pytest.fixture
def server(workshop: Workshop, state: Path) -> Iterator[RunningServer]:
    with run_server(workshop, state, **SIZES) as running:
        yield running


def test_a_round_over_http(server: RunningServer, http: httpx.Client, workshop: Workshop) -> None:
    opened = http.get("/v1/round").json()
    assert opened["masked"] == MASKED.text
    assert json.loads(opened["masked"]).keys() == {
        *("bits", "support", "clip", "weight_cap", "cohort", "min_cohort", "curious", "dropouts", "steps", "noise")
    }
    fleet = Fleet(server.coordinator, workshop, 4)
    sent = {"keys": 0, "shares": 0, "unmasking": 0}
    told = dict(sent)

    def post(name: str, kind: str, body: Any) -> dict[str, Any] | None:
        if kind == "upload":
            upload_update(server.url, body, name)
            return {}
        answer = http.post(f"/v1/masked/{kind}", json=body)
        counted = {"draws": "keys", "members": "shares"}.get(kind, kind if kind in sent else "unmasking")
        sent[counted] += len(answer.request.content)
        told[counted] += len(answer.content)
        if answer.status_code == 202:
            assert (answer.headers["Retry-After"], answer.content) == ("75", b"")
            return None
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    fleet.send = post  # type: ignore[method-assign]
    fleet.to("answer")
    last = fleet.requests["phone0"][1]
    for name in fleet.phones:
        assert fleet.deliver(name)
    until(lambda: server.coordinator.current.round == 2, "the next round")
    report = final_report(server)
    first = report["rounds"][0]
    assert (first["ending"], first["accepted"]) == ("full", 4)
    assert first["cohort"] == {
        "stage": "over",
        "through": dict.fromkeys(("gathering", "drawing", "sharing", "uploading", "agreeing", "answering"), 4),
    }
    for kind, nbytes in sent.items():
        assert (first[f"{kind}_up_bytes"], first[f"{kind}_down_bytes"]) == (nbytes, told[kind])
    assert adds_up(first) and adds_up(report["totals"])
    page = http.get("/dashboard/rounds/1").text
    assert "over; gathering 4; drawing 4; sharing 4; uploading 4; agreeing 4; answering 4" in page
    answered = http.post("/v1/masked/answer", json=last)
    assert (answered.status_code, answered.json()) == (200, {})
    late = http.post("/v1/masked/list", json={"round": 1, "phone": "phone0"})
    assert (late.status_code, late.json()["title"]) == (410, "The round is over")


LONG = {f"phone{number}": "00" * 81 for number in range(256)}


REFUSED: tuple[tuple[str, dict[str, Any], int], ...] = (
    ("keys", {"masking": "zz" * 32}, 400),
    ("keys", {"masking": "00" * 33}, 400),
    ("keys", {"signature": ""}, 400),
    ("keys", {"more": 1}, 400),
    ("keys", {"phone": "../x"}, 400),
    ("keys", {"round": -1}, 400),
    ("keys", {"round": 9}, 409),
    ("keys", {"signature": "00" * 64}, 422),
    ("shares", {"shares": LONG}, 400),
    ("shares", {"shares": {"phone1": "00"}}, 400),
    ("shares", {"shares": {"phone1": "00" * 81}}, 409),
    ("answer", {"self": "00" * 32, "shares": {"x" * 65: "00" * 32}}, 400),
    ("answer", {"self": "00" * 32, "shares": {str(number): "00" * 32 for number in range(4097)}}, 400),
    ("agreement", {"signature": "00" * 600_000}, 413),
    ("list", {}, 409),
)


def test_what_no_phone_sends_is_refused(server: RunningServer, http: httpx.Client, workshop: Workshop) -> None:
    keys = Fleet(server.coordinator, workshop, 1).phones["phone0"].keys()
    for kind, change, status in REFUSED:
        body = {"round": 1, "phone": "phone0", **(keys if kind == "keys" else {}), **change}
        answer = http.post(f"/v1/masked/{kind}", json=body)
        assert (answer.status_code, answer.headers["Content-Type"]) == (status, "application/problem+json"), body


def test_a_phone_speaks_for_itself(server: RunningServer, workshop: Workshop) -> None:
    body = {"round": 1, **Fleet(server.coordinator, workshop, 1).phones["phone0"].keys()}
    with client_of(server.url, {}) as http:
        answer = http.post("/v1/masked/keys", json=body, headers={PHONE_HEADER: "phone1"})
        assert (answer.status_code, "who asks, expected" in answer.text) == (403, True)
        assert http.post("/v1/masked/keys", json=body, headers={PHONE_HEADER: "phone0"}).status_code == 202
