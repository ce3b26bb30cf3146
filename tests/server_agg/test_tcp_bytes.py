"""What TCP carried, by the kernel's counters: TLS included, of the phone and round that used the connection."""

import contextlib
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from phonograd.server_agg.http import tcp
from phonograd.server_agg.http.tcp import CountedListener, TcpCounter
from phonograd.server_agg.report.document import read_phones, read_report
from phonograd.server_agg.settings.security import SecuritySettings
from tests.server_agg.relay import Relay, relay_to
from tests.server_agg.test_app import post
from tests.server_agg.test_watching import scrape
from tests.server_agg.workshop import RunningServer, Workshop, client_of, run_server
from tests.support.waiting import until

linux = pytest.mark.skipif(sys.platform != "linux", reason="the counters are Linux's")
LAST_RECORD = 64  # at least the bytes of TLS's goodbye, which a client that has gone does not read
StartServer = Callable[..., contextlib.AbstractContextManager[RunningServer]]


@pytest.fixture
def secure(workshop: Workshop, tmp_path: Path, tls: SecuritySettings) -> Iterator[tuple[RunningServer, Relay, str]]:
    """A server with TLS, the network to it, and its URL there."""
    with run_server(workshop, tmp_path / "state", security=tls) as server, relay_to(server.port) as (wire, url):
        yield server, wire, url.replace("http", "https")


def named(phone: str) -> dict[str, str]:
    return {"Phonograd-Phone": phone}


def report_once(server: RunningServer, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The report once no request is open, and its totals fulfil a condition: the last bytes are counted when their
    connection ends.
    """
    found: list[dict[str, Any]] = []

    def fulfilled() -> bool:
        if server.requests:
            return False
        server.coordinator.ledger.flush()
        found.append(read_report(server.state))
        return condition(found[-1]["totals"])

    until(fulfilled, "the bytes that are expected")
    return found[-1]


@linux
def test_plain_http_is_what_tcp_carries(server: RunningServer, workshop: Workshop) -> None:
    with relay_to(server.port) as (wire, url):
        with client_of(url, named("phone1")) as http:
            http.get("/v1/round")
            http.get("/v1/model")
            post(http, workshop.update(1), "phone1")
        with client_of(url) as http:
            http.get("/v1/model", headers={"Connection": "close"})  # the server's last bytes are on their way
        report = report_once(server, lambda totals: totals["down_tcp_bytes"] == wire.down)
        samples, _ = scrape(server.url)
    carried = {(name, *(value for _, value in labels)): value for (name, labels), value in samples.items()}
    kinds = ("upload", "model", "round")
    for direction, nbytes in (("up", wire.up), ("down", wire.down)):
        assert sum(carried["phonograd_tcp_bytes_total", direction, kind] for kind in kinds) == nbytes
    for of in (report["totals"], report["rounds"][0]):
        assert of["up_tcp_bytes"] == wire.up == of["up_body_bytes"] + of["up_header_bytes"]
        assert of["down_tcp_bytes"] == wire.down == of["down_body_bytes"] + of["down_header_bytes"]


@linux
def test_tls_is_counted_outside_http(secure: tuple[RunningServer, Relay, str], workshop: Workshop) -> None:
    server, wire, url = secure
    with client_of(url, named("phone1")) as http:
        http.get("/v1/model")
        post(http, workshop.update(1), "phone1")
    totals = report_once(server, lambda totals: totals["up_tcp_bytes"] == wire.up)["totals"]
    assert wire.down <= totals["down_tcp_bytes"] <= wire.down + LAST_RECORD
    handshake = 500  # a certificate goes down; records have headers
    assert totals["up_tcp_bytes"] > totals["up_body_bytes"] + totals["up_header_bytes"]
    assert totals["down_tcp_bytes"] > totals["down_body_bytes"] + totals["down_header_bytes"] + handshake


@linux
def test_bytes_are_those_of_the_phone_and_round_that_used_the_connection(
    secure: tuple[RunningServer, Relay, str], workshop: Workshop
) -> None:
    server, wire, url = secure
    model, updates = workshop.base_path.stat().st_size, [workshop.update(1), workshop.update(2)]
    with client_of(url) as http:
        http.get("/v1/model", headers=named("phone1"))
        http.get("/v1/round", headers=named("phone2"))
        for seed, update in enumerate(updates, 1):
            assert post(http, update, f"phone{seed}").status_code == 201
        http.get("/v1/round", headers=named("phone3"))
    assert wire.connections == 1
    report = report_once(server, lambda totals: totals["up_tcp_bytes"] == wire.up)
    phones = {phone["phone"]: phone for number in (1, 2) for phone in read_phones(server.state, number)}
    for name, update in zip(("phone1", "phone2"), updates, strict=True):
        assert update.stat().st_size < phones[name]["up_tcp_bytes"] < update.stat().st_size + 4000
    assert model < phones["phone1"]["down_tcp_bytes"] < model + 6000
    assert 0 < phones["phone2"]["down_tcp_bytes"] < 2000  # though it came right after the model
    first, second = report["rounds"]
    assert second["up_tcp_bytes"] == phones["phone3"]["up_tcp_bytes"] < 1000
    assert first["up_tcp_bytes"] + second["up_tcp_bytes"] == wire.up


@contextlib.contextmanager
def connection() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The phone's end, and the server's."""
    with CountedListener() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        with socket.create_connection(listener.getsockname()) as phone, listener.accept()[0] as accepted:
            yield phone, accepted


def fill(accepted: socket.socket) -> int:
    """Send until all buffers are full, as nobody reads; how much."""
    accepted.setblocking(False)
    written = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            written += accepted.send(bytes(1 << 16))
    return written


def reset_by(phone: socket.socket, accepted: socket.socket) -> None:
    phone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    phone.close()
    with pytest.raises(ConnectionResetError):
        until(lambda: not accepted.recv(1), "the reset")


@linux
def test_an_answer_that_is_sent_while_the_next_request_comes_belongs_to_its_own() -> None:
    booked: list[tuple[str, int, int]] = []
    with connection() as (phone, accepted):
        counter = TcpCounter(accepted)
        for name, up, down in (("first", b"x" * 10, b"y" * 100), ("second", b"x" * 20, b"y" * 200)):
            phone.sendall(up)
            accepted.recv(100)
            counter.begin(lambda *nbytes, name=name: booked.append((name, *nbytes)))
            counter.end()
            accepted.sendall(down)
        assert booked == [("first", 10, 100)]
        phone.sendall(b"the rest of a body that was refused")
        accepted.recv(100)
        accepted.close()
        counter.close()
    assert booked[1:] == [("second", 55, 200)]


@linux
@pytest.mark.parametrize("reset", [False, True])
def test_what_waits_in_a_closed_socket_counts_if_it_will_be_sent(reset: bool) -> None:
    booked: list[tuple[int, int]] = []
    with connection() as (phone, accepted):
        counter = TcpCounter(accepted)
        counter.begin(lambda up, down: booked.append((up, down)))
        written = fill(accepted)
        if reset:
            reset_by(phone, accepted)
        counter.end()
        accepted.close()
        counter.close()
    ((up, down),) = booked
    assert up == 0
    assert 0 < down < written if reset else down == written


@linux
def test_bytes_that_a_reset_took_back_make_no_request_negative() -> None:
    booked: list[int] = []
    with connection() as (phone, accepted):
        counter = TcpCounter(accepted)
        counter.begin(lambda _, down: booked.append(down))
        fill(accepted)
        counter.end()
        counter.begin(lambda _, down: booked.append(down))
        reset_by(phone, accepted)
        counter.end()
        accepted.close()
        counter.close()
    assert booked[0] > 0
    assert booked[1] == 0


def test_a_kernel_that_does_not_count_gives_no_figure(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tcp, "_KNOWN", False)
    with start_server() as server, client_of(server.url, named("phone1")) as http:
        assert http.get("/v1/round").status_code == 200
        report = report_once(server, lambda totals: totals["requests"] == 1)
        (phone,) = read_phones(server.state, 1)
        for of in (report["totals"], report["rounds"][0], phone):
            assert (of["up_tcp_bytes"], of["down_tcp_bytes"]) == (None, None)
            assert of["up_header_bytes"] > 0
