"""Who answers RoundClient: captive portals and proxies, a server that refuses, and one with tokens over TLS."""

import hashlib
import json
from pathlib import Path

import pytest

from phonograd.android_harness.app import Tools
from tests.android_harness.app.portal import HTML, JSON, PROBLEM, Answer, answering, tls_settings
from tests.android_harness.app.round_phones import REMAINS, Phones
from tests.server_agg.faults import states

pytestmark = pytest.mark.apk


def test_a_captive_portal(phones: Phones) -> None:
    """Whatever it answers, before the round and to the update, nothing is believed and nothing lost."""
    with phones.serving() as server:
        answers: tuple[Answer, ...] = (
            HTML,
            (302, {"Location": server.url + "/v1/round"}, b""),
            (307, {"Location": server.url + "/v1/uploads"}, b""),
            (200, JSON, b"<html>"),
            (200, JSON, b"[" * 50_000),
            (200, JSON, json.dumps({"round": 1, "base_sha256": "../../x", "codecs": ["rows-f32"]}).encode()),
            (200, JSON, b'"' + b"x" * 5_000_000),
            (201, {"Location": "http://127.0.0.1:1/v1/uploads/" + "0" * 32, "Upload-Offset": "0"}, b""),
            (201, {"Location": "/v1/uploads/" + "0" * 32, "Upload-Offset": "0"}, b""),
            (409, {"Content-Type": "text/html"}, b"<html>"),
            (511, {"Content-Type": "text/html"}, b"<html>"),
        )
        remaining: list[Answer] = []
        with answering(lambda _: remaining[0]) as portal:
            with phones.app(portal) as app:
                for answer in answers:
                    remaining[:] = [answer]
                    said = app.network()
                    assert (said.action, said.after, said.refused) == ("NETWORK", 300, f"{answer[0]} false"), answer
                    assert "is it a captive portal" in said.trouble
            with phones.app(server.url) as app:
                app.network()
                app.train()
            update = (phones.workspace() / "update.safetensors").read_bytes()
            with phones.app(portal) as app:
                for answer in answers:
                    remaining[:] = [answer]
                    assert app.network().refused == f"{answer[0]} false"
            assert (phones.workspace() / "update.safetensors").read_bytes() == update
        with phones.app(server.url) as app:
            assert app.network().receipt == "1"
        assert states(server) == [("phone-17", "accepted")]


def test_another_model_than_was_asked_for(phones: Phones) -> None:
    current = {"round": 4, "base_sha256": "a" * 64, "strategy": "fedavg", "codecs": ["rows-f32"], "participate": True}
    asked = []

    def answer(path: str) -> Answer:
        asked.append(path)
        if path == "/v1/round":
            return 200, JSON, json.dumps(current).encode()
        tag = hashlib.sha256(b"other").hexdigest()
        return 200, {"Content-Type": "application/octet-stream", "ETag": f'"{tag}"'}, b"other"

    with answering(answer) as url, phones.app(url) as app:
        said = app.network()
        assert (said.action, said.after) == ("NETWORK", 3600)
        assert "not the one asked for" in said.trouble
        model = f"/v1/models/{'a' * 64}"
        assert asked == ["/v1/round", f"{model}?base={phones.place.artifacts.weights_sha256}", model]
        assert not (phones.workspace() / "model.safetensors").exists()
        assert app.train() == ["nothing to train"]
        app.network()
        assert asked[3:] == ["/v1/round", model]  # from the front


def test_no_more_of_a_model_than_was_announced(phones: Phones) -> None:
    """Nor than fits the app's own, whatever the server says of it."""
    current = {"round": 4, "base_sha256": "a" * 64, "strategy": "fedavg", "codecs": ["rows-f32"], "participate": True}
    kind = {"Content-Type": "application/octet-stream", "ETag": f'"{"a" * 64}"'}
    given: list[Answer] = []
    with (
        answering(lambda path: (200, JSON, json.dumps(current).encode()) if path == "/v1/round" else given[0]) as url,
        phones.app(url) as app,
    ):
        for headers, body, message in (
            ({"Content-Encoding": "gzip"}, b"model", "found Content-Encoding: gzip"),
            ({"Content-Length": ""}, b"model", "found no Content-Length"),
            ({"Content-Length": str(1 << 40)}, b"model", f"found {1 << 40} bytes"),
            (
                {"Content-Length": "5", "Transfer-Encoding": "chunked"},
                b"3\r\nmod\r\n8\r\nel, more\r\n0\r\n\r\n",
                "5 bytes expected, more are coming",
            ),
        ):
            given[:] = [(200, kind | headers, body)]
            said = app.network()
            assert (said.action, said.after, message in said.trouble) == ("NETWORK", 300, True), said
            assert (phones.workspace() / "model.fetched").stat().st_size <= 5


def test_when_to_come_again(phones: Phones) -> None:
    document = json.dumps({"title": "Why", "detail": "because"}).encode()
    given: list[Answer] = []
    with answering(lambda _: given[0]) as url, phones.app(url) as app:
        for status, headers, action, after in (
            (429, {"Retry-After": "7"}, "NETWORK", 7),
            (503, {"Retry-After": "99999999"}, "NETWORK", 86400),
            (503, {"Retry-After": "0"}, "NETWORK", 1),
            (503, {"Retry-After": "Wed, 21 Oct 2065 07:28:00 GMT"}, "NETWORK", 300),  # of a clock
            (507, {}, "NETWORK", 300),
            (403, {}, "NOTHING", 300),
            (400, {}, "NOTHING", 300),
        ):
            given[:] = [(status, PROBLEM | headers, document)]
            said = app.network()
            assert (said.action, said.after) == (action, after)
            assert said.trouble == f"the server refused ({status} Why): because"
        given[:] = [(503, {"Content-Type": "text/html", "Retry-After": "9"}, b"of a proxy")]
        assert app.network().after == 9


def test_tls_and_tokens(phones: Phones, tools: Tools, tmp_path: Path) -> None:
    security, _, trust = tls_settings(tmp_path, tools)
    with phones.serving(security=security) as server:
        phones.enrol(server)
        with phones.app(server.url) as app:  # which does not know the authority
            said = app.network()
            assert (said.action, said.refused) == ("NETWORK", "-")
        with phones.app(server.url, **trust) as app:
            app.ask("until 2")
        assert states(server) == [("phone-17", "accepted")] * 2
        assert phones.models() == {server.coordinator.current.base_sha256}
        assert phones.remains() == REMAINS
