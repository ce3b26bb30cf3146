"""GET /v1/round: from memory where that is enough, and not again what the phone has."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from phonograd.device_runtime.base.documents import read
from phonograd.server_agg.http.round_routes import RoundForPhone, _answer_body
from phonograd.server_agg.security.registry import PhoneRegistry
from tests.server_agg.checked_answers import Checked
from tests.server_agg.http_uploads import post
from tests.server_agg.private_runs import ENDLESS, PHONES, enrol
from tests.server_agg.workshop import RunningServer, StartServer, Workshop, client_of, run_server


@pytest.fixture
def phones(server: RunningServer) -> Iterator[httpx.Client]:
    with client_of(server.url, {}) as http:
        yield http


def ask_round(http: httpx.Client, phone: str | None = None, etag: str = '"none"') -> httpx.Response:
    named = {} if phone is None else {"Phonograd-Phone": phone}
    return http.get("/v1/round", headers={"If-None-Match": etag} | named)


def closed_ledger(*_: object) -> Any:
    raise AssertionError("the ledger was asked")


def test_a_phone_with_a_place_is_answered_from_memory(
    phones: httpx.Client, server: RunningServer, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert post(phones, workshop.update(1), "a").status_code == 201
    with monkeypatch.context() as patched:
        patched.setattr(server.coordinator.ledger, "reading", closed_ledger)
        assert ask_round(phones, "b").json()["participate"]
        assert ask_round(phones).json()["accepted"] == 1
    refused = ask_round(phones, "a").json()
    assert (refused["participate"], "already has an update of this phone" in refused["reason"]) == (False, True)
    assert post(phones, workshop.update(2), "b").status_code == 201
    assert ask_round(phones, "a").json()["participate"]  # in the next round


def test_what_memory_knows_comes_back_after_a_restart(start_server: StartServer, workshop: Workshop) -> None:
    for restarted in (False, True):
        with start_server(clients_per_round=3) as running, client_of(running.url, {}) as http:
            if not restarted:
                assert post(http, workshop.update(1), "a").status_code == 201
            assert [ask_round(http, phone).json()["participate"] for phone in "ab"] == [False, True]


def test_a_full_round_is_the_ledger_s_to_tell(start_server: StartServer) -> None:
    with start_server(clients_per_round=2, max_clients=2) as running, client_of(running.url, {}) as http:
        for phone in "ab":
            announced = {"Tus-Resumable": "1.0.0", "Upload-Length": "9", "Phonograd-Phone": phone}
            assert http.post("/v1/uploads", headers=announced).status_code == 201
        assert [ask_round(http, phone).json()["participate"] for phone in "abc"] == [True, True, False]


def test_what_a_phone_has_is_not_told_again(phones: httpx.Client, workshop: Workshop) -> None:
    checked = Checked(phones)
    first = ask_round(phones, "a")
    for known in (first.headers["etag"], f"W/{first.headers['etag']}"):
        again = checked.ask("GET", "/v1/round", headers={"Phonograd-Phone": "a", "If-None-Match": known})
        assert (again.status_code, again.headers["etag"]) == (304, first.headers["etag"])
    assert ask_round(phones, "b", first.headers["etag"]).status_code == 304  # the same answer
    assert ask_round(phones, None, first.headers["etag"]).status_code == 200
    assert post(phones, workshop.update(1), "a").status_code == 201
    assert ask_round(phones, "b", first.headers["etag"]).json()["accepted"] == 1
    without = ask_round(phones, "a", ask_round(phones, "b").headers["etag"])
    assert (without.status_code, without.json()["participate"]) == (200, False)
    waiting = ask_round(phones, "a", without.headers["etag"])
    assert (waiting.status_code, waiting.headers["Retry-After"]) == (304, without.headers["Retry-After"])


def test_the_etag_covers_when_to_come_again(phones: httpx.Client) -> None:
    answer = read(RoundForPhone, ask_round(phones).json())
    assert _answer_body(answer, "1")[0] == _answer_body(answer, "2")[0]
    assert len({_answer_body(answer, seconds)[1] for seconds in ("", "1", "2")}) == 3


def test_the_etag_covers_what_only_administrators_see(workshop: Workshop, tmp_path: Path) -> None:
    with run_server(workshop, tmp_path / "state", **ENDLESS) as running:
        enrol(running.coordinator)
        token = PhoneRegistry(running.coordinator.ledger).rotate(PHONES[0], "90d", "0s", "test").token
        etags = set()
        for bearer, accepted in ((token, None), (running.owner.token, 0)):
            with client_of(running.url, {"Authorization": f"Bearer {bearer}"}) as http:
                answer = ask_round(http)
                etags |= {answer.headers["etag"]}
                assert (answer.json()["accepted"], ask_round(http, None, answer.headers["etag"]).status_code) == (
                    accepted,
                    304,
                )
        assert len(etags) == 2
