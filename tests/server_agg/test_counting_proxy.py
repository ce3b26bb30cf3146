"""The ledger beside a proxy that counts and the kernel's counters: its figures are theirs, whatever happens."""

import contextlib
import inspect
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from phonograd.device_runtime.client.connection import RetryPolicy
from phonograd.device_runtime.client.pull import pull_model
from phonograd.device_runtime.client.server_client import upload_update
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.server_agg.http import downloads, tcp
from phonograd.server_agg.http.accepting import ReservingListener
from phonograd.server_agg.report.document import read_phones, read_report
from phonograd.server_agg.settings.security import SecuritySettings
from phonograd.server_agg.storage.upload_bytes import FileBytes, Sink
from tests.server_agg.http_uploads import head_of, post
from tests.server_agg.metrics import scrape
from tests.server_agg.relay import Relay, linux, relay_to
from tests.server_agg.tus_phone import TusPhone
from tests.server_agg.workshop import RunningServer, StartServer, Workshop, client_of, run_server
from tests.support.waiting import PATIENCE_SECONDS, until

BUFFER_BYTES = 1 << 14  # asked for of each socket's buffers; the kernel takes twice that
TLS_BYTES = 8000  # at most, of a handshake and of the heads of records
LARGE = LanguageModelConfig("lstm", vocabulary=40_000, embedding=128, hidden=8, layers=1)  # 22 MB: no buffer holds it
COUNTERS = ("up_header_bytes", "up_body_bytes", "down_header_bytes", "down_body_bytes")
ONCE_MORE = RetryPolicy(attempts=5, first_wait_seconds=0.01, longest_wait_seconds=0.01)


def request(path: str, phone: str, newline: str = "\r\n", *lines: str) -> bytes:
    head = (f"GET {path} HTTP/1.1", "Host: 127.0.0.1", f"Phonograd-Phone: {phone}", *lines, "", "")
    return newline.join(head).encode()


def update_request(update: Path, phone: str) -> bytes:
    body = update.read_bytes()
    return head_of(body, phone) + body


class Scene:
    """A server behind a proxy, and a folder for what its phones keep."""

    def __init__(self, server: RunningServer, wire: Relay, url: str, folder: Path):
        self.server, self.wire, self.url, self.folder = server, wire, url, folder
        self.workshop = server.workshop

    @contextlib.contextmanager
    def phone(self) -> Iterator[httpx.Client]:
        with client_of(self.url, {"Phonograd-Phone": "a"}) as http:
            yield http

    @contextlib.contextmanager
    def raw(self) -> Iterator[socket.socket]:
        with socket.create_connection(("127.0.0.1", int(self.url.rpartition(":")[2])), PATIENCE_SECONDS) as phone:
            yield phone


def read_all(phone: socket.socket) -> bytes:
    """All up to the connection's end."""
    return b"".join(iter(lambda: phone.recv(1 << 16), b""))


def cut_and_resumed_upload(scene: Scene) -> None:
    """Two connections end in the middle of the body."""
    scene.wire.cuts[:] = [None, 2500, 3000]
    upload_update(scene.url, scene.workshop.update(1), "a", retry=ONCE_MORE)


def stalled_and_resumed_upload(scene: Scene) -> None:
    data = scene.workshop.update(1).read_bytes()
    with scene.phone() as http:
        phone = TusPhone(http, "a", data)
        phone.create_upload()
        half = len(data) // 2
        with scene.raw() as stalled:
            stalled.sendall(phone.patch_head() + data[:half])
            assert b" 408 " in read_all(stalled)  # after the idle time
        assert phone.offset() == half
        assert phone.patch(half, data[half:]).status_code == 204


def downloads_of_all_kinds(scene: Scene) -> None:
    """Known already, in parts, without its bytes; and, after a round, by a link from the one before."""
    size = scene.workshop.base_path.stat().st_size
    with scene.phone() as http:
        etag = http.get("/v1/model").headers["ETag"]
        assert http.get("/v1/model", headers={"If-None-Match": etag}).status_code == 304
        http.get("/v1/model", headers={"Range": f"bytes={size // 3}-"})
        http.head("/v1/model")
    for seed in (1, 2):
        upload_update(scene.url, scene.workshop.update(seed), f"phone{seed}")
    until(lambda: scene.server.coordinator.current.round == 2, "the next round")
    pulled = pull_model(scene.url, scene.folder / "model", scene.workshop.base_path, phone="a")
    assert pulled.links == 1


def no_http(scene: Scene) -> None:
    with scene.raw() as phone:
        phone.sendall(request("/v1/round", "a") + b"this is no HTTP\r\n")
        read_all(phone)


@linux
@pytest.mark.parametrize(
    "traffic", [cut_and_resumed_upload, stalled_and_resumed_upload, downloads_of_all_kinds, no_http]
)
def test_the_ledger_has_the_bytes_of_the_proxy(
    traffic: Callable[[Scene], None], workshop: Workshop, tmp_path: Path
) -> None:
    idle_seconds = 3.0 if traffic is stalled_and_resumed_upload else 600.0
    with (
        run_server(workshop, tmp_path / "state", idle_seconds=idle_seconds, publish="top-rows") as server,
        relay_to(server.port) as (wire, url),
    ):
        traffic(Scene(server, wire, url, tmp_path))
        report = report_once(
            server, lambda totals: (totals["up_tcp_bytes"], totals["down_tcp_bytes"]) == (wire.up, wire.down)
        )
        samples, _ = scrape(server.url)
    totals = report["totals"]
    carried = {labels: value for (name, labels), value in samples.items() if name == "phonograd_tcp_bytes_total"}
    for direction, nbytes in (("up", wire.up), ("down", wire.down)):
        assert sum(value for labels, value in carried.items() if ("direction", direction) in labels) == nbytes
        assert sum(entry[f"{direction}_tcp_bytes"] for entry in report["rounds"]) == nbytes
    up, down = (sum(totals[f"{way}_{part}_bytes"] for part in ("header", "body")) for way in ("up", "down"))
    assert up == wire.up - (17 if traffic is no_http else 0)  # TCP alone has what is no HTTP request
    assert down == wire.down or (traffic is no_http and 0 < wire.down - down < 200)  # the answer to no request
    assert min(totals[name] for name in COUNTERS) >= 0


@linux
def test_a_download_that_is_cut_counts_what_left_the_server(
    make_workshop: Callable[..., Workshop], tmp_path: Path, tls: SecuritySettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The difference to what the phone read is in the buffers of two sockets."""
    accept = ReservingListener.accept

    def narrow(listener: ReservingListener) -> tuple[socket.socket, object]:
        accepted, address = accept(listener)
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
        return accepted, address

    monkeypatch.setattr(ReservingListener, "accept", narrow)
    with run_server(make_workshop(LARGE), tmp_path / "state", security=tls) as server:
        with connect(server.port, secure=True) as phone:
            phone.sendall(request("/v1/model", "a"))
            read = 0
            while read < 270_000:  # a piece of the file and a little of the next
                read += len(phone.recv(4096))
            phone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset at its end
        totals = report_once(server, lambda totals: totals["down_tcp_bytes"] > 0)["totals"]
    counted = totals["down_header_bytes"] + totals["down_body_bytes"]
    most = read + 2 * 2 * BUFFER_BYTES  # of either socket
    assert read <= counted <= most + TLS_BYTES
    assert read <= totals["down_tcp_bytes"] <= most + TLS_BYTES


@contextlib.contextmanager
def connect(port: int, secure: bool = False) -> Iterator[socket.socket]:
    """A phone of small buffers."""
    with socket.socket() as plain:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        plain.settimeout(PATIENCE_SECONDS)
        plain.connect(("127.0.0.1", port))
        if not secure:
            yield plain
            return
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with context.wrap_socket(plain) as phone:
            yield phone


def test_pipelined_requests_have_their_own_bytes(server: RunningServer, workshop: Workshop) -> None:
    sent = {
        "windows": request("/v1/round", "windows", "\r\n", "Accept:     */*   "),
        "unix": request("/v1/round", "unix", "\n"),
        "first": update_request(workshop.update(1), "first"),
        "second": update_request(workshop.update(2), "second"),
        "last": request("/v1/model", "last", "\r\n", "Connection: close"),
    }
    with connect(server.port) as phone:
        phone.sendall(b"".join(sent.values()))
        received = len(read_all(phone))
    totals = report_once(server, lambda totals: totals["requests"] == len(sent))["totals"]
    assert totals["down_header_bytes"] + totals["down_body_bytes"] == received
    counted = {phone["phone"]: phone for phone in read_phones(server.state, 1)}
    for seed, name in enumerate(("first", "second"), 1):
        assert counted[name]["up_body_bytes"] == workshop.update(seed).stat().st_size
    of_round_1 = {name: nbytes for name, nbytes in sent.items() if name != "last"}  # it fetches the next one's model
    for name, nbytes in of_round_1.items():
        assert counted[name]["up_header_bytes"] + counted[name]["up_body_bytes"] == len(nbytes), name
    assert totals["up_header_bytes"] + totals["up_body_bytes"] == sum(map(len, sent.values()))


def test_a_download_that_nobody_reads_ends_and_counts_what_the_socket_took(
    make_workshop: Callable[..., Workshop], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, bytes_of = [], downloads._bytes_of
    monkeypatch.setattr(downloads, "_bytes_of", lambda *asked: read.append(bytes_of(*asked)) or read[-1])
    asked, workshop = request("/v1/model", "stalled"), make_workshop(LARGE)
    with run_server(workshop, tmp_path / "state", idle_seconds=1.0) as server, connect(server.port) as phone:
        phone.sendall(asked)
        until(lambda: bool(server.requests), "the download's beginning")
        totals = report_once(server, lambda totals: totals["requests"] == 1)["totals"]
        counted = totals["down_header_bytes"] + totals["down_body_bytes"]
        assert totals["model_bytes"] > 0  # no refusal
        assert len(read_all(phone)) == counted < workshop.base_path.stat().st_size
        until(lambda: inspect.getgeneratorstate(read[0]) == inspect.GEN_CLOSED, "the end of its file")
    assert totals["up_header_bytes"] == len(asked)


def test_a_body_that_goes_on_after_its_answer_counts_to_its_own_request(
    server: RunningServer, workshop: Workshop, http: httpx.Client
) -> None:
    phone = TusPhone(http, "late", workshop.update(1).read_bytes())
    phone.create_upload()
    with connect(server.port) as connection:
        connection.sendall(phone.patch_head(5))
        assert connection.recv(4096).startswith(b"HTTP/1.1 409 ")
        connection.sendall(phone.data)
        report_once(server, lambda totals: totals["up_body_bytes"] == len(phone.data))
    (counted,) = [one for one in read_phones(server.state, 1) if one["phone"] == "late"]
    assert counted["retried_bytes"] == len(phone.data)


def test_what_came_before_a_connection_broke_is_stored_though_nobody_had_asked_for_it(
    server: RunningServer, workshop: Workshop, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    phone, append, broken = TusPhone(http, "gone", workshop.update(1).read_bytes()), FileBytes.append, threading.Event()

    def slowly(uploads: FileBytes, identifier: str, offset: int) -> Sink:
        assert broken.wait(PATIENCE_SECONDS)
        return append(uploads, identifier, offset)

    monkeypatch.setattr(FileBytes, "append", slowly)
    phone.create_upload()
    with connect(server.port) as connection:
        connection.sendall(phone.patch_head() + phone.data[:1000])
        until(lambda: bool(server.requests), "the request")
    time.sleep(0.3)  # the server notices; if it is slower, this tests less
    broken.set()
    until(lambda: phone.offset() == 1000, "the bytes that came")


LAST_RECORD = 64  # at least the bytes of TLS's goodbye, which a client that has gone does not read


def report_once(server: RunningServer, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The report once no request is open, and its totals fulfil a condition: the last bytes are counted when their
    connection ends.
    """
    found: list[dict[str, Any]] = []

    def is_fulfilled() -> bool:
        if server.requests:
            return False
        server.coordinator.ledger.flush()
        found.append(read_report(server.state))
        return condition(found[-1]["totals"])

    until(is_fulfilled, "the bytes that are expected")
    return found[-1]


@linux
def test_bytes_under_tls_are_those_of_the_phone_and_round_that_used_the_connection(
    workshop: Workshop, tmp_path: Path, tls: SecuritySettings
) -> None:
    model, updates = workshop.base_path.stat().st_size, [workshop.update(1), workshop.update(2)]
    with run_server(workshop, tmp_path / "state", security=tls) as server, relay_to(server.port) as (wire, url):
        with client_of(url.replace("http", "https")) as http:
            http.get("/v1/model", headers={"Phonograd-Phone": "phone1"})
            http.get("/v1/round", headers={"Phonograd-Phone": "phone2"})
            for seed, update in enumerate(updates, 1):
                assert post(http, update, f"phone{seed}").status_code == 201
            http.get("/v1/round", headers={"Phonograd-Phone": "phone3"})
        report = report_once(server, lambda totals: totals["up_tcp_bytes"] == wire.up)
    assert wire.connections == 1
    phones = {phone["phone"]: phone for number in (1, 2) for phone in read_phones(server.state, number)}
    for name, update in zip(("phone1", "phone2"), updates, strict=True):
        assert update.stat().st_size < phones[name]["up_tcp_bytes"] < update.stat().st_size + 4000
    assert model < phones["phone1"]["down_tcp_bytes"] < model + 6000
    assert 0 < phones["phone2"]["down_tcp_bytes"] < 2000  # though it came right after the model
    first, second = report["rounds"]
    assert second["up_tcp_bytes"] == phones["phone3"]["up_tcp_bytes"] < 1000
    assert first["up_tcp_bytes"] + second["up_tcp_bytes"] == wire.up
    totals, handshake = report["totals"], 500  # a certificate goes down; records have headers
    assert wire.down <= totals["down_tcp_bytes"] <= wire.down + LAST_RECORD
    assert totals["up_tcp_bytes"] > totals["up_body_bytes"] + totals["up_header_bytes"]
    assert totals["down_tcp_bytes"] > totals["down_body_bytes"] + totals["down_header_bytes"] + handshake


def test_a_kernel_that_does_not_count_gives_no_figure(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tcp, "_KNOWN", False)
    with start_server() as server, client_of(server.url, {"Phonograd-Phone": "phone1"}) as http:
        assert http.get("/v1/round").status_code == 200
        report = report_once(server, lambda totals: totals["requests"] == 1)
        (phone,) = read_phones(server.state, 1)
        for of in (report["totals"], report["rounds"][0], phone):
            assert (of["up_tcp_bytes"], of["down_tcp_bytes"]) == (None, None)
            assert of["up_header_bytes"] > 0
