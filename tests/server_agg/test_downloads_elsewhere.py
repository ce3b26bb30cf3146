"""Models and links that nginx or an object store sends: told by the server, fetched by phones, counted as asked for."""

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from phonograd.device_runtime.base.errors import ServerRefusedError, UsageError, WeightsError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.client.connection import Connection, elsewhere_of
from phonograd.device_runtime.client.protocol import ELSEWHERE_HEADER
from phonograd.device_runtime.client.pull import pull_model
from phonograd.device_runtime.client.resumable_download import download_model
from phonograd.server_agg.report.calculations import price_report
from phonograd.server_agg.report.document import read_report
from phonograd.server_agg.report.text import byte_rows, size
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.settings.security import SecuritySettings
from phonograd.server_agg.storage.stores import store_at
from tests.server_agg.checked_answers import Checked
from tests.server_agg.faults import adds_up
from tests.server_agg.http_uploads import final_report
from tests.server_agg.link_rounds import LOSSY, run_round
from tests.server_agg.signed_store import SignedStore, signed_store
from tests.server_agg.workshop import RunningServer, Workshop, client_of, run_server, settings_with

__all__ = ["signed_store"]
TOKEN = f"pgd_{'0' * 16}_{'0' * 64}"


@pytest.fixture
def server(workshop: Workshop, tmp_path: Path, signed_store: SignedStore) -> Iterator[RunningServer]:
    assert signed_store
    place = {"store": f"memory://{uuid.uuid4().hex}", "downloads": "redirect"}
    with run_server(workshop, tmp_path / "state", **LOSSY, **place) as running:
        yield running


@pytest.fixture
def phone(server: RunningServer, signed_store: SignedStore) -> Connection:
    """A phone whose user has allowed the store."""
    return replace(server.owner, models_from=(signed_store.url,))


def test_a_phone_fetches_models_and_links_from_the_store(
    server: RunningServer, phone: Connection, signed_store: SignedStore, workshop: Workshop, tmp_path: Path
) -> None:
    made, there = run_round(server.coordinator, workshop), tmp_path / "model"
    whole = download_model(phone, there, phone="a")
    assert (whole.sha256, whole.received, sha256_of_file(there)) == (made.sha256, made.bytes, made.sha256)
    link = pull_model(phone, tmp_path / "new", workshop.base_path, phone="b")
    assert (link.sha256, link.links, link.received) == (made.sha256, 1, made.link_bytes)
    assert not {"authorization", "phonograd-phone"} & {name for asked in signed_store.asked for name in asked}

    newest = run_round(server.coordinator, workshop)
    assert pull_model(phone, tmp_path / "two", workshop.base_path).sha256 == newest.sha256
    assert len(signed_store.asked) == 2  # several links in one are the server's to send

    report = final_report(server)
    second, third = report["rounds"][1:3]
    assert (second["redirected_bytes"], second["model_bytes"]) == (made.bytes + made.link_bytes, made.bytes)
    assert second["sent_links"]["top-rows"] == {"requests": 1, "bytes": made.link_bytes}
    assert third["redirected_bytes"] == 0 < third["sent_link_bytes"]
    assert second["phone_down_max_bytes"] > made.bytes
    assert all(adds_up(entry) for entry in report["rounds"])
    *_, of_all = rows = byte_rows(report)
    assert rows[1]["redirected"] != "0 B"
    assert (of_all["round"], of_all["links"]) == ("all", size(report["totals"]["sent_link_bytes"]))
    costs = price_report(report | {"totals": report["totals"] | {"down_tcp_bytes": 7}}, 1.0)
    assert costs["totals"]["down_bytes"] == 7 + report["totals"]["redirected_bytes"]


def test_a_download_goes_on_in_the_store(
    server: RunningServer, phone: Connection, signed_store: SignedStore, workshop: Workshop, tmp_path: Path
) -> None:
    signed_store.cut = 1000
    size = workshop.base_path.stat().st_size
    assert download_model(phone, tmp_path / "model").received == size
    assert [asked.get("range") for asked in signed_store.asked] == [None, "bytes=1000-"]
    assert final_report(server)["totals"]["redirected_bytes"] == 2 * size - 1000


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((302, {"Location": "http://127.0.0.1:9/"}, b""), "HTTP status 302"),
        ((403, {}, b"<Error/>"), "HTTP status 403"),
        ((200, {}, b"a portal's page"), "SHA-256"),
        ((206, {"Content-Range": "bytes 3-4/5"}, b"xx"), "bytes from 0 expected"),
    ],
)
def test_what_is_not_the_model_is_not_taken_for_it(
    phone: Connection, signed_store: SignedStore, tmp_path: Path, answer: Any, error: str
) -> None:
    signed_store.answer = answer
    with pytest.raises((ServerRefusedError, WeightsError), match=error) as refused:
        download_model(phone, tmp_path / "model")
    assert "signature" not in str(refused.value)
    assert list(tmp_path.glob("*model*")) == []


def test_where_a_phone_lets_itself_be_sent(tmp_path: Path) -> None:
    ours = Connection("https://phones.example.org", TOKEN, tmp_path / "ca.pem")
    found = elsewhere_of(ours, "https://store.example:9000/bucket/model?X-Amz-Signature=abc")
    assert found == Connection("https://store.example:9000/", None, tmp_path / "ca.pem")
    for url in ("nonsense", "file:///etc/passwd", ""):
        with pytest.raises(ServerRefusedError, match="the URL of its model expected"):
            elsewhere_of(ours, url)
    with pytest.raises(ServerRefusedError, match="or over https like its own, expected, found 'http://store.example'"):
        elsewhere_of(ours, "http://store.example/x")
    plain = Connection("http://10.0.0.1", TOKEN, token_over_http=True, models_from=("https://store.example/",))
    for url in ("http://10.0.0.1:80/x", "https://store.example:443/x"):
        assert elsewhere_of(plain, url).token is None
    for url in ("http://127.0.0.1/", "http://10.0.0.1:81/", "https://10.0.0.1/", "http://store.example/"):
        with pytest.raises(ServerRefusedError, match="allow it with `models_from`"):
            elsewhere_of(plain, url)
    with pytest.raises(UsageError, match="store"):
        Connection("http://10.0.0.1", models_from=("store",))


def test_a_bare_redirect_is_not_followed(signed_store: SignedStore, tmp_path: Path) -> None:
    other = f"{signed_store.url}/other"
    signed_store.answer = (302, {"Location": other, ELSEWHERE_HEADER: other}, b"")
    with pytest.raises(ServerRefusedError, match="refused \\(302"):
        download_model(signed_store.url, tmp_path / "model")
    assert len(signed_store.asked) == 1


def test_answers_without_bodies_are_as_the_document_says(server: RunningServer) -> None:
    with client_of(server.url) as client:
        checked = Checked(client)
        first, second = (checked.ask("GET", "/v1/model") for _ in range(2))
        assert (first.content, first.headers[ELSEWHERE_HEADER]) == (b"", second.headers[ELSEWHERE_HEADER])
        assert checked.ask("GET", "/v1/model", headers={"If-None-Match": first.headers["ETag"]}).status_code == 304
        assert checked.ask("GET", "/v1/model", headers={"Range": "bytes=999999-"}).status_code == 416
        assert ELSEWHERE_HEADER in client.head("/v1/model").headers
    assert final_report(server)["totals"]["redirected_bytes"] == 2 * server.workshop.base_path.stat().st_size


def test_nginx_is_told_a_file_and_others_get_the_bytes(workshop: Workshop, tmp_path: Path) -> None:
    size, sha256 = workshop.base_path.stat().st_size, workshop.base_sha256
    tokens = SecuritySettings(auth="tokens")
    with (
        run_server(workshop, tmp_path / "state", downloads="accel", security=tokens) as running,
        contextlib.closing(client_of(running.url, {"Authorization": f"Bearer {running.owner.token}"})) as client,
    ):
        told = client.get("/v1/model", headers={"X-Forwarded-For": "192.0.2.1", "Range": "bytes=10-"})
        assert (told.status_code, told.content, told.headers["ETag"]) == (200, b"", f'"{sha256}"')
        assert told.headers["X-Accel-Redirect"] == f"/phonograd/models/{sha256}.safetensors"
        assert client.get("/v1/model").content == workshop.base_path.read_bytes()
        totals = final_report(running)["totals"]
    assert (totals["redirected_bytes"], totals["model_bytes"]) == (size - 10, 2 * size - 10)
    assert read_report(tmp_path / "state")["totals"]["redirected_bytes"] == size - 10


def test_a_url_is_signed_once_in_a_while(signed_store: SignedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    signed: list[str] = []
    now = [0.0]
    monkeypatch.setattr(MemoryFileSystem, "sign", lambda _, path, **__: signed.append(path) or str(len(signed)))
    monkeypatch.setattr("phonograd.server_agg.storage.stores.time.monotonic", lambda: now[0])
    store = store_at("memory://x")
    assert [store.presigned_url(name) for name in ("a", "a", "b")] == ["1", "1", "2"]
    now[0] = 3600.0
    assert store.presigned_url("a") == "3"


@pytest.mark.parametrize("wrong", ["memory://x", None])
def test_what_can_not_be_redirected_to(wrong: str | None, workshop: Workshop, tmp_path: Path) -> None:
    expected = "`store` is None" if wrong is None else "expected a store that presigns URLs, as S3: memory://x: models"
    with pytest.raises((UsageError, ValueError), match=expected):
        Coordinator(workshop.artifacts, tmp_path / "state", settings_with(store=wrong, downloads="redirect"))
    assert not (tmp_path / "state").exists()
    with pytest.raises(ValueError, match="`downloads` is 'nginx', expected one of direct, accel, redirect"):
        settings_with(downloads="nginx")
