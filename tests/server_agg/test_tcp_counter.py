"""TcpCounter alone, on sockets without a server: what the kernel counts is booked to the request that it is of."""

import contextlib
import socket
import struct
from collections.abc import Iterator

import pytest

from phonograd.server_agg.http.tcp import TcpCounter, count_socket
from tests.server_agg.relay import linux
from tests.support.waiting import until


@contextlib.contextmanager
def connection() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The phone's end, and the server's."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as phone,
        count_socket(listener.accept()[0]) as accepted,
    ):
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
