import gzip
import hashlib
import http.server
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from phonograd.device_runtime.base.errors import (
    ServerRefusedError,
    ServerUnreachableError,
    UpdateError,
    UsageError,
    WeightsError,
)
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.client import resumable_upload
from phonograd.device_runtime.client import server_client as client
from phonograd.device_runtime.client.connection import RetryPolicy
from phonograd.device_runtime.update.codecs import CODECS
from phonograd.server_agg.report.document import read_report
from tests.server_agg.faults import QUICK
from tests.server_agg.workshop import RunningServer, StartServer, Workshop
from tests.support.ports import reserved_port
from tests.support.waiting import until


def test_a_whole_round(server: RunningServer, workshop: Workshop, tmp_path: Path) -> None:
    current = client.current_round(server.url)
    assert (current.round, current.accepted, current.clients_per_round) == (1, 0, 2)
    assert current.base_sha256 == workshop.base_sha256
    assert current.codecs == tuple(CODECS)

    path = tmp_path / "model.safetensors"
    model = client.download_model(server.url, path, phone="phone1")
    assert (model.sha256, model.nbytes, model.changed) == (workshop.base_sha256, path.stat().st_size, True)
    assert sha256_of_file(path) == workshop.base_sha256

    update = workshop.update(1)
    steps: list[tuple[int, int]] = []
    receipt = client.upload_update(server.url, update, "phone1", lambda sent, total: steps.append((sent, total)))
    assert (receipt.accepted, receipt.round_closed, receipt.bytes) == (1, False, update.stat().st_size)
    assert steps[-1] == (update.stat().st_size, update.stat().st_size)
    assert client.upload_update(server.url, update, "phone1") == receipt

    last = client.upload_update(server.url, workshop.update(2), "phone2")
    assert (last.round_closed, last.model_sha256) == (True, client.current_round(server.url).base_sha256)
    new = client.download_model(server.url, path, known_sha256=model.sha256)
    assert (new.sha256, new.changed) == (last.model_sha256, True)
    again = client.download_model(server.url, tmp_path / "again", known_sha256=new.sha256)
    assert (again.sha256, again.nbytes, again.changed, (tmp_path / "again").exists()) == (new.sha256, 0, False, False)
    old = client.download_model(server.url, path, sha256=model.sha256)
    assert old.sha256 == sha256_of_file(path) == model.sha256
    # A connection's last bytes are recorded after its answer.
    until(lambda: client.report(server.owner) == read_report(server.state), "the same report by HTTP and from disk")


def test_says_why_it_was_refused(server: RunningServer, workshop: Workshop, tmp_path: Path) -> None:
    stale = r"refused \(409 Another round or base model\): the update is of round 5, expected round 1, .*round_number"
    with pytest.raises(ServerRefusedError, match=stale):
        client.upload_update(server.url, workshop.update(1, round=5), "phone1")
    with pytest.raises(ServerRefusedError, match=r"refused \(404 Not Found\): model 0000.* is not here"):
        client.download_model(server.url, tmp_path / "model", sha256="0" * 64)
    assert not (tmp_path / "model").exists()


def test_refuses_a_phone_name_and_a_file_before_asking(server: RunningServer, tmp_path: Path) -> None:
    with pytest.raises(
        UpdateError, match=r"phone name 'naïve\\n': 1 to 64 of A-Z a-z 0-9 . _ - but neither . nor .. expected"
    ):
        client.upload_update(server.url, tmp_path / "update", "naïve\n")
    with pytest.raises(UpdateError, match="update: cannot be read: No such file"):
        client.upload_update(server.url, tmp_path / "update", "phone1")


@pytest.mark.parametrize("server_url", ["phones.example", "ftp://127.0.0.1", "http://", "http://[::1", ""])
def test_says_what_a_server_url_looks_like(server_url: str) -> None:
    with pytest.raises(UsageError, match="expected"):
        client.current_round(server_url)


def test_says_that_nobody_listens(workshop: Workshop, tmp_path: Path) -> None:
    update = workshop.update(1)
    with reserved_port() as port:
        url = f"http://127.0.0.1:{port}"
        calls: tuple[Callable[[], object], ...] = (
            lambda: client.current_round(url),
            lambda: client.report(url),
            lambda: client.download_model(url, tmp_path / "model"),
            lambda: client.upload_update(url, update, "phone1"),
        )
        for call in calls:
            with pytest.raises(ServerUnreachableError, match=f"{url}: cannot be reached: .*refused; check the URL"):
                call()


def test_an_offset_that_is_asked_for_too_early_is_asked_for_again(
    server: RunningServer, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier request, whose connection broke, may reach the server after the question: the answer is 409 then."""
    head, send = httpx.Client.head, resumable_upload._Upload._send_from
    early = [httpx.Response(409)]
    broken = [ServerUnreachableError("broken"), ServerUnreachableError("broken again")]

    def ask(self: httpx.Client, *args: Any, **options: Any) -> httpx.Response:
        return early.pop() if early else head(self, *args, **options)

    def send_or_break(*args: Any) -> int:
        if broken:
            raise broken.pop()
        return send(*args)

    monkeypatch.setattr(resumable_upload, "SMALL_BYTES", 0)
    monkeypatch.setattr(httpx.Client, "head", ask)
    monkeypatch.setattr(resumable_upload._Upload, "_send_from", send_or_break)
    receipt = client.upload_update(server.url, workshop.update(0), "phone1", retry=QUICK)
    assert (receipt.accepted, early, broken) == (1, [], [])


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phonograd.device_runtime.client.resumable_upload.MIN_PIECE_BYTES", 128)
    monkeypatch.setattr("phonograd.device_runtime.client.connection.MIN_PIECE_BYTES", 128)


def proxy_of(monkeypatch: pytest.MonkeyPatch, most: int) -> list[int]:
    """Refuse bodies of more than so many bytes, as a proxy does. The sizes of bodies that are sent."""
    send, sizes = httpx.Client.send, []

    def refuse_or_send(self: httpx.Client, request: httpx.Request, **options: Any) -> httpx.Response:
        nbytes = int(request.headers.get("Content-Length", 0))
        sizes.extend([nbytes] if nbytes else [])
        answer = httpx.Response(413, headers={"Server": "nginx/1.2.3"}, html="<html>", request=request)
        return answer if nbytes > most else send(self, request, **options)

    monkeypatch.setattr(httpx.Client, "send", refuse_or_send)
    return sizes


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("small", [0, 1 << 20])
def test_pieces_become_smaller_until_a_proxy_takes_them(
    server: RunningServer, workshop: Workshop, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resumable_upload, "SMALL_BYTES", small)
    update = workshop.update(1)
    nbytes = update.stat().st_size
    monkeypatch.setattr(resumable_upload, "LARGE_PIECE_BYTES", 3 * nbytes // 8)
    sizes = proxy_of(monkeypatch, nbytes // 5)
    assert client.upload_update(server.url, update, "phone1", retry=RetryPolicy(attempts=1)).accepted == 1
    piece = 3 * nbytes // 8 // 2
    assert sizes[:3] == [nbytes, 2 * piece, piece]
    assert sum(sizes[2:]) == nbytes
    assert set(sizes[2:-1]) == {piece}


@pytest.mark.usefixtures("small_pieces")
def test_a_proxy_that_takes_almost_nothing_is_named(
    server: RunningServer, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = proxy_of(monkeypatch, 127)
    with pytest.raises(ServerRefusedError, match=r"before it \(nginx/1.2.3\) .* 128 bytes \(413\); .*client_max"):
        client.upload_update(server.url, workshop.update(1), "phone1", retry=QUICK)
    assert (sizes[-1], sizes.count(128)) == (128, 1)


@pytest.mark.usefixtures("small_pieces")
def test_the_size_of_pieces_may_be_said(
    server: RunningServer, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, update = proxy_of(monkeypatch, 1000), workshop.update(1)
    connection = client.Connection(server.url, piece_size=1000)
    assert client.upload_update(connection, update, "phone1").accepted == 1
    assert (max(sizes), sum(sizes)) == (1000, update.stat().st_size)
    with pytest.raises(UsageError, match="`piece_size`: at least 128 bytes expected, found 127"):
        client.Connection(server.url, piece_size=127)


@pytest.mark.parametrize("rewritten", ["http://127.0.0.1:9/fleet/v1/", "/fleet/v1/", "./"])
def test_a_location_that_a_proxy_rewrote(
    server: RunningServer, workshop: Workshop, rewritten: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The upload is under the URL that the user named, and no other is asked."""
    send, asked = httpx.Client.send, set()

    def rewrite(self: httpx.Client, request: httpx.Request, **options: Any) -> httpx.Response:
        asked.add(str(request.url).partition("/v1/")[0])
        answer = send(self, request, **options)
        if "Location" in answer.headers:
            answer.headers["Location"] = answer.headers["Location"].replace("/v1/", rewritten)
        return answer

    monkeypatch.setattr(resumable_upload, "SMALL_BYTES", 0)
    monkeypatch.setattr(httpx.Client, "send", rewrite)
    assert client.upload_update(server.url, workshop.update(1), "phone1").accepted == 1
    assert asked == {server.url}


def test_the_servers_own_413_is_for_good(
    start_server: StartServer, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = proxy_of(monkeypatch, 1 << 30)
    with start_server(max_upload_bytes=100) as server, pytest.raises(ServerRefusedError, match="at most 100 bytes"):
        client.upload_update(server.url, workshop.update(1), "phone1", retry=QUICK)
    assert len(sizes) == 1


def test_proxies_do_not_come_between_loopback(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with reserved_port() as nobody:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{nobody}")
        assert client.current_round(server.url).round == 1


class Impostor(http.server.BaseHTTPRequestHandler):
    """Answers everything with what the test has put into `answer`: status, headers, body, bytes really sent."""

    answer: tuple[int, dict[str, str], bytes]

    def do_GET(self) -> None:
        status, headers, body = self.answer
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            if value:
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def impostor() -> Iterator[str]:
    with http.server.HTTPServer(("127.0.0.1", 0), Impostor) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_model_with_another_hash_is_not_kept(impostor: str, tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.write_bytes(b"the model of before")
    Impostor.answer = (200, {"ETag": '"' + "a" * 64 + '"'}, b"altered")
    with pytest.raises(
        WeightsError, match=r"SHA-256 aaaaaaaaaaaa… expected, the 7 bytes received have .*fetch it again"
    ):
        client.download_model(impostor, path)
    assert path.read_bytes() == b"the model of before"
    assert os.listdir(tmp_path) == ["model"]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((200, {}, b"<html>"), "a JSON object expected, found something else; is it phonograd serve"),
        ((200, {}, b"[]"), "a JSON object expected"),
        ((200, {}, b"{}"), "a field of its answer is missing or wrong"),
        ((200, {}, json.dumps({"round": "one"}).encode()), "a field of its answer is missing or wrong"),
        ((500, {}, b"\xff\xfe"), r"refused \(500 Internal Server Error\): no explanation given"),
        ((302, {"Location": "/elsewhere"}, b""), r"refused \(302 Found\)"),
        ((502, {}, b""), "a proxy answers 502"),
        ((504, {}, b""), "a proxy answers 504"),
    ],
)
def test_another_server_than_ours(impostor: str, answer: tuple[int, dict[str, str], bytes], message: str) -> None:
    Impostor.answer = answer
    expected = ServerUnreachableError if answer[0] in (502, 504) else ServerRefusedError
    with pytest.raises(expected, match=message):
        client.current_round(impostor)


CHUNKS = {"Transfer-Encoding": "chunked"}  # which overrules a length


@pytest.mark.parametrize(
    ("headers", "body", "message"),
    [
        ({"Content-Encoding": "gzip"}, gzip.compress(bytes(1 << 20)), "without Content-Encoding expected.*'gzip'"),
        ({"Content-Length": ""}, b"model", "its model's Content-Length expected, found none"),
        (
            CHUNKS | {"Content-Length": "5"},
            b"3\r\nmod\r\n8\r\nel, more\r\n",
            "at most 5 bytes expected, more are coming",
        ),
        ({"Content-Length": "101"}, b"model", "at most 100 bytes expected, found 101"),
    ],
)
def test_no_more_than_was_announced(
    impostor: str, tmp_path: Path, headers: dict[str, str], body: bytes, message: str
) -> None:
    Impostor.answer = (200, {"ETag": f'"{"a" * 64}"'} | headers, body)
    with pytest.raises(ServerRefusedError, match=message):
        client.download_model(impostor, tmp_path / "model", most_bytes=100)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("headers", [{}, {"Content-Length": "", "Transfer-Encoding": ""}])
def test_an_answer_in_memory_has_a_bound(
    impostor: str, headers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("phonograd.device_runtime.client.connection.MAX_ANSWER_BYTES", 1000)
    for status in (200, 500):
        Impostor.answer = (status, headers, b" " * 1001)
        with pytest.raises(ServerRefusedError, match="at most 1000 bytes expected, more are coming"):
            client.current_round(impostor)


@pytest.mark.parametrize(
    ("etag", "message"),
    [
        ("v1", "a model's hash expected as ETag"),
        (hashlib.sha256(b"other").hexdigest(), "a model's hash expected as ETag, found another"),
    ],
)
def test_a_model_that_is_not_named_as_the_one_that_was_asked_for(
    impostor: str, tmp_path: Path, etag: str, message: str
) -> None:
    Impostor.answer = (200, {"ETag": f'"{etag}"'}, b"other")
    with pytest.raises(ServerRefusedError, match=message):
        client.download_model(impostor, tmp_path / "model", sha256="b" * 64)
    assert os.listdir(tmp_path) == []
