"""The ledger's bytes beside those that a socket carried: pipelined, cut, stalled and gone, on plain HTTP."""

import contextlib
import json
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.server_agg.report.document import read_phones, read_report
from phonograd.server_agg.storage.upload_bytes import FileBytes, Sink
from tests.server_agg.test_app import head_of
from tests.server_agg.test_tcp_bytes import report_once
from tests.server_agg.tus_phone import BODY, TUS, TusPhone
from tests.server_agg.workshop import RunningServer, Workshop, client_of, run_server
from tests.support.waiting import PATIENCE_SECONDS, until

LARGE = LanguageModelConfig(
    "lstm", vocabulary=40_000, embedding=128, hidden=8, layers=1
)  # 22 MB: more than buffers hold
IDLE_SECONDS = 1.0
COUNTERS = ("up_header_bytes", "up_body_bytes", "down_header_bytes", "down_body_bytes")


@pytest.fixture
def large(make_workshop: Callable[..., Workshop], tmp_path: Path) -> Iterator[RunningServer]:
    """A server of a model that no socket's buffers hold, and that ends what is idle for a second."""
    with run_server(make_workshop(LARGE), tmp_path / "state", idle_seconds=IDLE_SECONDS) as server:
        yield server


def connected(server: RunningServer) -> socket.socket:
    """A phone that takes little before it reads."""
    phone = socket.socket()
    phone.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    phone.settimeout(600)
    phone.connect(("127.0.0.1", server.port))
    return phone


def read_all(phone: socket.socket) -> int:
    """Bytes up to the connection's end."""
    return sum(map(len, iter(lambda: phone.recv(1 << 16), b"")))


def request(path: str, phone: str, newline: str = "\r\n", *lines: str, method: str = "GET") -> bytes:
    head = (f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Phonograd-Phone: {phone}", *lines, "", "")
    return newline.join(head).encode()


def update_request(update: Path, phone: str) -> bytes:
    body = update.read_bytes()
    return head_of(body, phone) + body


def phones_of(server: RunningServer) -> dict[str, dict[str, Any]]:
    return {phone["phone"]: phone for phone in read_phones(server.state, 1)}


def test_pipelined_requests_have_their_own_bytes(server: RunningServer, workshop: Workshop) -> None:
    sent = {
        "windows": request("/v1/round", "windows", "\r\n", "Accept:     */*   "),
        "unix": request("/v1/round", "unix", "\n"),
        "first": update_request(workshop.update(1), "first"),
        "second": update_request(workshop.update(2), "second"),
        "last": request("/v1/model", "last", "\r\n", "Connection: close"),
    }
    with connected(server) as phone:
        phone.sendall(b"".join(sent.values()))
        received = read_all(phone)
    totals = report_once(server, lambda totals: totals["requests"] == len(sent))["totals"]
    assert totals["down_header_bytes"] + totals["down_body_bytes"] == received
    counted = phones_of(server)
    for seed, name in enumerate(("first", "second"), 1):
        assert counted[name]["up_body_bytes"] == workshop.update(seed).stat().st_size
    of_round_1 = {name: nbytes for name, nbytes in sent.items() if name != "last"}  # it fetches the next one's model
    for name, nbytes in of_round_1.items():
        assert counted[name]["up_header_bytes"] + counted[name]["up_body_bytes"] == len(nbytes), name
    assert totals["up_header_bytes"] + totals["up_body_bytes"] == sum(map(len, sent.values()))


def test_a_download_that_nobody_reads_ends_and_counts_what_the_socket_took(large: RunningServer) -> None:
    asked = request("/v1/model", "stalled")
    with connected(large) as phone:
        phone.sendall(asked)
        until(lambda: bool(large.requests), "the download's beginning")
        totals = report_once(large, lambda totals: totals["requests"] == 1)["totals"]
        counted = totals["down_header_bytes"] + totals["down_body_bytes"]
        assert totals["model_bytes"] > 0  # no refusal
        assert read_all(phone) == counted < large.workshop.base_path.stat().st_size
    assert totals["up_header_bytes"] == len(asked)


def test_an_answer_to_a_phone_that_has_gone_counts_as_far_as_it_went(large: RunningServer) -> None:
    with connected(large) as phone:
        phone.sendall(request("/v1/model", "gone"))
        read = 0
        while read < 20_000:
            read += len(phone.recv(20_000))
        phone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset, like a lost network
    totals = report_once(large, lambda totals: totals["requests"] == 1)["totals"]
    assert totals["model_bytes"] > 0
    assert read <= totals["down_header_bytes"] + totals["down_body_bytes"] < large.workshop.base_path.stat().st_size
    assert min(totals[name] for name in COUNTERS) >= 0


def patch_head(phone: TusPhone, offset: int) -> bytes:
    lines = [*(f"{name}: {value}" for name, value in TUS.items()), f"Upload-Offset: {offset}"]
    lines += [f"Content-Type: {BODY}", f"Content-Length: {len(phone.data)}"]
    return request(phone.path, phone.name, "\r\n", *lines, method="PATCH")


def test_a_body_that_goes_on_after_its_answer_counts_to_its_own_request(
    server: RunningServer, workshop: Workshop, http: httpx.Client
) -> None:
    phone = TusPhone(http, "late", workshop.update(1).read_bytes())
    phone.create_upload()
    with connected(server) as connection:
        connection.sendall(patch_head(phone, 5))
        assert connection.recv(4096).startswith(b"HTTP/1.1 409 ")
        connection.sendall(phone.data)
        report_once(server, lambda totals: totals["up_body_bytes"] == len(phone.data))
    assert phones_of(server)["late"]["retried_bytes"] == len(phone.data)


def test_what_came_before_a_connection_broke_is_stored_though_nobody_had_asked_for_it(
    server: RunningServer, workshop: Workshop, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    phone, append, broken = TusPhone(http, "gone", workshop.update(1).read_bytes()), FileBytes.append, threading.Event()

    def slowly(uploads: FileBytes, identifier: str, offset: int) -> Sink:
        assert broken.wait(PATIENCE_SECONDS)
        return append(uploads, identifier, offset)

    monkeypatch.setattr(FileBytes, "append", slowly)
    phone.create_upload()
    with connected(server) as connection:
        connection.sendall(patch_head(phone, 0) + phone.data[:1000])
        until(lambda: bool(server.requests), "the request")
    time.sleep(0.3)  # until the server has noticed
    broken.set()
    until(lambda: phone.offset() == 1000, "the bytes that came")


@contextlib.contextmanager
def served(workshop: Workshop, state: Path, end: signal.Signals) -> Iterator[str]:
    """The URL of a server in a process of its own, which `end` ends."""
    line = [sys.executable, "-m", "phonograd", "serve", "--artifacts", workshop.artifacts.folder, "--state", state]
    with subprocess.Popen([*map(str, line), "--port", "0", "--json"], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.send_signal(end)


def test_a_stalled_upload_goes_on_where_it_was_after_a_kill(workshop: Workshop, tmp_path: Path) -> None:
    data, state = workshop.update(1).read_bytes(), tmp_path / "state"
    half = len(data) // 2
    with served(workshop, state, signal.SIGKILL) as url, client_of(url) as http, socket.socket() as stalled:
        phone = TusPhone(http, "a", data)
        phone.create_upload()
        stalled.connect(("127.0.0.1", int(url.rpartition(":")[2])))
        stalled.sendall(patch_head(phone, 0) + data[:half])
        stored = state / "incoming" / phone.path.rpartition("/")[2]
        until(lambda: stored.exists() and stored.stat().st_size == half, "the bytes that came, while the phone stalls")
    with served(workshop, state, signal.SIGTERM) as url, client_of(url) as http:
        phone.http = http
        assert phone.offset() == half
        assert phone.patch(half, data[half:]).status_code == 204
    assert read_report(state)["totals"]["up_body_bytes"] == len(data)
