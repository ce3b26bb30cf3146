"""The ledger beside a proxy that counts: whatever happens to connections, its figures are the proxy's.

`pytest -o log_cli=true --log-cli-level=INFO` shows a row for each kind of traffic.
"""

import contextlib
import logging
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from phonograd.device_runtime.client.connection import RetryPolicy
from phonograd.device_runtime.client.pull import pull_model
from phonograd.device_runtime.client.server_client import upload_update
from phonograd.server_agg.http.tcp import CountedListener
from phonograd.server_agg.settings.security import SecuritySettings
from tests.server_agg.relay import Relay, relay_to
from tests.server_agg.test_app import head_of
from tests.server_agg.test_tcp_bytes import linux, report_once, tls
from tests.server_agg.test_wire_bytes import COUNTERS, LARGE, request, update_request
from tests.server_agg.tus_phone import TUS, TusPhone
from tests.server_agg.workshop import RunningServer, Workshop, client_of, run_server
from tests.support.waiting import PATIENCE_SECONDS, until

__all__ = ["tls"]
log = logging.getLogger(__name__)

BUFFER_BYTES = 1 << 14  # asked for of each socket's buffers; the kernel takes twice that
TLS_BYTES = 8000  # at most, of a handshake and of the heads of records
ONCE_MORE = RetryPolicy(attempts=5, first_wait_seconds=0.01, longest_wait_seconds=0.01)


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


def everything(phone: socket.socket) -> bytes:
    """All up to the connection's end."""
    return b"".join(iter(lambda: phone.recv(1 << 16), b""))


LAST = request("/v1/model", "z", "\r\n", "Connection: close")


def pipelined(scene: Scene) -> None:
    requests = (
        request("/v1/round", "a"),
        update_request(scene.workshop.update(1), "a"),
        request("/v1/round", "b", "\n", "Accept:    */*  "),
        update_request(scene.workshop.update(2), "b"),
        LAST,
    )
    with scene.raw() as phone:
        phone.sendall(b"".join(requests))
        everything(phone)


def cut_and_resumed_upload(scene: Scene) -> None:
    """Two connections end in the middle of the body."""
    scene.wire.cuts[:] = [None, 2500, 3000]
    upload_update(scene.url, scene.workshop.update(1), "a", retry=ONCE_MORE)


def stalled_and_resumed_upload(scene: Scene) -> None:
    data = scene.workshop.update(1).read_bytes()
    with scene.phone() as http:
        phone = TusPhone(http, "a", data)
        phone.create_upload()
        path, half = phone.path, len(data) // 2
        lines = (*(f"{name}: {value}" for name, value in TUS.items()), "Upload-Offset: 0")
        head = (*lines, "Content-Type: application/offset+octet-stream", f"Content-Length: {len(data)}")
        with scene.raw() as stalled:
            stalled.sendall(request(path, "a", "\r\n", *head, method="PATCH") + data[:half])
            assert b" 408 " in everything(stalled)  # after the idle time
        assert phone.offset() == half
        assert phone.patch(half, data[half:]).status_code == 204


def refused_upload(scene: Scene) -> None:
    """The digest is another body's."""
    update = scene.workshop.update(1)
    with scene.raw() as phone:
        phone.sendall(head_of(bytes(update.stat().st_size), "a") + update.read_bytes())
        phone.sendall(LAST)
        assert b" 460 " in everything(phone)


def cached_model(scene: Scene) -> None:
    with scene.phone() as http:
        etag = http.get("/v1/model").headers["ETag"]
        assert http.get("/v1/model", headers={"If-None-Match": etag}).status_code == 304
    pull_model(scene.url, scene.folder / "model", scene.workshop.base_path, phone="a")


def resumed_download(scene: Scene) -> None:
    size = scene.workshop.base_path.stat().st_size
    with scene.phone() as http:
        http.get("/v1/model", headers={"Range": f"bytes=0-{size // 3}"})
        http.get("/v1/model", headers={"Range": f"bytes={size // 3 + 1}-"})
        http.head("/v1/model")


def links(scene: Scene) -> None:
    """A round, then its model by a link from the one before."""
    for seed in (1, 2):
        upload_update(scene.url, scene.workshop.update(seed), f"phone{seed}")
    until(lambda: scene.server.coordinator.current.round == 2, "the next round")
    pulled = pull_model(scene.url, scene.folder / "model", scene.workshop.base_path, phone="a")
    assert pulled.links == 1


def no_http(scene: Scene) -> None:
    with scene.raw() as phone:
        phone.sendall(request("/v1/round", "a") + b"this is no HTTP\r\n")
        everything(phone)


TRAFFIC: dict[str, Callable[[Scene], None]] = {
    one.__name__: one
    for one in (
        pipelined, cut_and_resumed_upload, stalled_and_resumed_upload, refused_upload, cached_model,
        resumed_download, links, no_http,
    )
}  # fmt: skip


@linux
@pytest.mark.parametrize("traffic", TRAFFIC)
def test_the_ledger_has_the_bytes_of_the_proxy(traffic: str, workshop: Workshop, tmp_path: Path) -> None:
    with (
        run_server(
            workshop, tmp_path / "state", idle_seconds=3.0 if "stalled" in traffic else 600.0, publish="top-rows"
        ) as server,
        relay_to(server.port) as (wire, url),
    ):
        TRAFFIC[traffic](Scene(server, wire, url, tmp_path))
        totals = report_once(
            server, lambda totals: (totals["up_tcp_bytes"], totals["down_tcp_bytes"]) == (wire.up, wire.down)
        )["totals"]
    up, down = (sum(totals[f"{way}_{part}_bytes"] for part in ("header", "body")) for way in ("up", "down"))
    log.info("%s: proxy %d up, %d down; TCP the same; HTTP %d up, %d down", traffic, wire.up, wire.down, up, down)
    assert up == wire.up - (17 if traffic == "no_http" else 0)  # TCP alone has what is no HTTP request
    assert down == wire.down or (traffic == "no_http" and 0 < wire.down - down < 200)  # the answer to what is none
    assert min(totals[name] for name in COUNTERS) >= 0


@linux
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_a_download_that_is_cut_counts_what_left_the_server(
    secure: bool, make_workshop: Callable[..., Workshop], tmp_path: Path, tls: SecuritySettings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The difference to what the phone read is in the buffers of two sockets."""
    accept = CountedListener.accept

    def narrow(listener: CountedListener) -> tuple[socket.socket, object]:
        accepted, address = accept(listener)
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
        return accepted, address

    monkeypatch.setattr(CountedListener, "accept", narrow)
    security = {"security": tls} if secure else {}
    with run_server(make_workshop(LARGE), tmp_path / "state", **security) as server:
        with connected(server.port, secure) as phone:
            phone.sendall(request("/v1/model", "a"))
            read = 0
            while read < 270_000:  # a piece of the file and a little of the next
                read += len(phone.recv(4096))
            phone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset at its end
        totals = report_once(server, lambda totals: totals["down_tcp_bytes"] > 0)["totals"]
    counted = totals["down_header_bytes"] + totals["down_body_bytes"]
    log.info("cut, TLS %s: read %d, HTTP %d, TCP %d", secure, read, counted, totals["down_tcp_bytes"])
    most = read + 2 * 2 * BUFFER_BYTES  # of either socket
    assert read <= counted <= most + TLS_BYTES
    assert read <= totals["down_tcp_bytes"] <= most + TLS_BYTES


@contextlib.contextmanager
def connected(port: int, secure: bool) -> Iterator[socket.socket]:
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
