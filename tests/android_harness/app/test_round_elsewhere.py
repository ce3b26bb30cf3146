"""RoundClient and a server that keeps its models in an object store: followed as it says, no further."""

import hashlib
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from phonograd.android_harness.app import Tools
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.client.connection import Connection
from phonograd.device_runtime.client.protocol import ELSEWHERE_HEADER
from phonograd.device_runtime.client.resumable_upload import upload_update
from phonograd.server_agg.security.registry import PhoneRegistry
from phonograd.server_agg.settings.security import SecuritySettings
from tests.android_harness.app.portal import HTML, answering, tls_settings
from tests.android_harness.app.round_phones import Phones
from tests.server_agg.signed_store import SignedStore, signed_store
from tests.server_agg.workshop import RunningServer

__all__ = ["signed_store"]

pytestmark = pytest.mark.apk

TOKENS = SecuritySettings(auth="tokens")


@pytest.fixture
def server(phones: Phones, signed_store: SignedStore) -> Iterator[RunningServer]:
    """A server that asks for tokens, in its second round, whose model phones must fetch."""
    with phones.serving(**redirecting(), security=TOKENS) as running:
        phones.enrol(running)
        another_round(running)
        yield running
    assert signed_store


def redirecting() -> dict[str, str]:
    return {"store": f"memory://{uuid.uuid4().hex}", "downloads": "redirect"}


def another_round(running: RunningServer, ca: Path | None = None) -> None:
    token = PhoneRegistry(running.coordinator.ledger).add("another", "phone", "90d", "me").token
    update = running.workshop.update(7, round=1, base=running.coordinator.folder.model(running.workshop.base_sha256))
    assert upload_update(Connection(running.url, token, ca), update, None).round_closed


def test_a_model_from_the_store_without_the_token(
    server: RunningServer, phones: Phones, signed_store: SignedStore
) -> None:
    signed_store.cut = 1000
    with phones.app(server.url, models=signed_store.url) as app:
        assert app.network().action == "NETWORK"
        assert (phones.workspace() / "model.fetched").stat().st_size == 1000
        assert app.network().action == "TRAIN"
    assert phones.models() == {server.coordinator.current.base_sha256}
    assert [asked.get("range") for asked in signed_store.asked] == [None, "bytes=1000-"]
    assert not {"authorization", "phonograd-phone"} & {name for asked in signed_store.asked for name in asked}


@pytest.mark.parametrize("answer", [(302, {"Location": "/other"}, b""), (403, {}, b"<Error/>"), (404, {}, b"")])
def test_a_store_that_has_it_not(
    answer: tuple[int, dict[str, str], bytes], server: RunningServer, phones: Phones, signed_store: SignedStore
) -> None:
    signed_store.answer = answer
    with phones.app(server.url, models=signed_store.url) as app:
        said = app.network()
        assert (said.action, said.after, said.refused) == ("NETWORK", 300, f"{answer[0]} false")
        assert len(signed_store.asked) == 1
        signed_store.answer = None
        assert app.network().action == "TRAIN"
    assert phones.models() == {server.coordinator.current.base_sha256}


def test_a_portal_at_the_store(server: RunningServer, phones: Phones, signed_store: SignedStore) -> None:
    signed_store.answer = HTML
    with phones.app(server.url, models=signed_store.url) as app:
        assert app.network().action == "NETWORK"
        assert not (phones.workspace() / "model.safetensors").exists()
        signed_store.answer = None
        app.ask("until 1")
    assert sha256_of_file(phones.workspace() / "model.safetensors") == server.coordinator.current.base_sha256


def test_no_place_that_the_app_has_not_named(server: RunningServer, phones: Phones, signed_store: SignedStore) -> None:
    """Anyone on the way may name one over http, such as the phone's own loopback."""
    with phones.app(server.url) as app:
        said = app.network()
        assert (said.action, said.after, signed_store.asked) == ("NETWORK", 300, [])
        assert f"at {signed_store.url}, which the app does not allow (modelsFrom)" in said.trouble


def test_only_our_own_answer_sends_a_phone_elsewhere(phones: Phones, signed_store: SignedStore) -> None:
    """A bare redirect does not, nor another kind of answer, nor an invalid URL."""
    current = (
        b'{"round": 4, "base_sha256": "%s", "strategy": "fedavg", "codecs": ["rows-f32"], "participate": true}'
        % (b"a" * 64)
    )
    kind = {"Content-Type": "application/octet-stream", "ETag": f'"{hashlib.sha256(b"x").hexdigest()}"'}
    there = {ELSEWHERE_HEADER: f"{signed_store.url}/x?signature=1"}
    for status, headers in (
        (302, kind | there | {"Location": f"{signed_store.url}/x"}),
        (200, HTML[1] | there),
        (200, {"Content-Type": kind["Content-Type"]} | there),
        (200, kind | {ELSEWHERE_HEADER: "file:///etc/passwd"}),
        (200, kind | {ELSEWHERE_HEADER: f"http://user@{signed_store.url[7:]}/x"}),
    ):
        answer = (status, headers, b"")
        round_ = (200, {"Content-Type": "application/json"}, current)
        with (
            answering(lambda path, a=answer, r=round_: r if path == "/v1/round" else a) as url,
            phones.app(url, models=signed_store.url) as app,
        ):  # type: ignore[misc]
            said = app.network()
            assert (said.action, said.refused, signed_store.asked) == ("NETWORK", f"{status} false", []), headers
            assert "is it a captive portal" in said.trouble


def test_no_plain_http_from_a_server_with_tls(
    phones: Phones, tools: Tools, signed_store: SignedStore, tmp_path: Path
) -> None:
    security, ca, trust = tls_settings(tmp_path, tools)
    with phones.serving(**redirecting(), security=security) as running:
        phones.enrol(running)
        another_round(running, ca)
        with phones.app(running.url, **trust) as app:
            assert "which the app does not allow (modelsFrom)" in app.network().trouble
    assert signed_store.asked == []
