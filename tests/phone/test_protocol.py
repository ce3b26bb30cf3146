"""The stand-in's side of the wire, with a host written here: what the real clients of today no longer send."""

import socket
from collections.abc import Iterator

import pytest

from tests.phone.stand_in import StandInPhone
from tests.phone.stand_in import messages as wire
from tests.phone.stand_in.messages import Message
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.standin


class Host:
    """A host that sends the messages that a test gives it."""

    def __init__(self, phone: StandInPhone):
        self._socket = socket.create_connection(("127.0.0.1", phone.port), timeout=PATIENCE_SECONDS)

    def __enter__(self) -> "Host":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, command: int, arg0: int, arg1: int, payload: bytes = b"") -> None:
        self.send_bytes(wire.encode(Message(command, arg0, arg1, payload)))

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> Message:
        """The next message."""
        header, length = wire.decode_header(self._exactly(wire.HEADER.size))
        return Message(header.command, header.arg0, header.arg1, self._exactly(length))

    def is_shut_out(self) -> bool:
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def connect(self) -> Message:
        """Say hello, be asked for a signature, offer a key, and be let in."""
        self.send(wire.CNXN, wire.VERSION, 1 << 20, b"host::features=shell_v2")
        assert self.receive().command == wire.AUTH
        self.send(wire.AUTH, wire.RSAPUBLICKEY, 0, b"a key test@host\0")
        return self.receive()

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self._socket.recv(count - len(data))
            assert more
            data += more
        return data


@pytest.fixture(scope="module")
def alone() -> Iterator[StandInPhone]:
    with StandInPhone() as phone:
        yield phone


def test_it_introduces_itself(alone: StandInPhone) -> None:
    with Host(alone) as host:
        answer = host.connect()
    assert (answer.command, answer.arg0, answer.arg1) == (wire.CNXN, wire.VERSION, 1 << 20)
    assert answer.payload == (
        b"device::ro.product.name=standin_a76;ro.product.model=Stand-in A76;ro.product.device=standin_a76;"
        b"features=shell_v2,cmd,stat_v2,ls_v2,fixed_push_mkdir,sendrecv_v2,fixed_push_symlink_timestamp"
    )


def test_nothing_is_sent_before_the_last_message_is_acknowledged(alone: StandInPhone) -> None:
    with Host(alone) as host:
        host.connect()
        host.send(wire.OPEN, 7, 0, b"exec:echo first; sleep 0.2; echo second\0")
        okay = host.receive()
        assert host.receive().payload == b"first\n"
        host.send(wire.OPEN, 8, 0, b"shell,v2,raw:sleep 0.6\0")  # in the meantime
        assert [host.receive().arg1 for _ in range(2)] == [8, 8]  # opened, and its exit code
        host.send(wire.OKAY, 7, okay.arg0)
        assert host.receive().payload == b"second\n"


@pytest.mark.parametrize(
    "header",
    [
        wire.HEADER.pack(wire.OPEN, 7, 0, 0, 0, wire.OPEN),
        wire.HEADER.pack(wire.OPEN, 7, 0, (1 << 20) + 1, 0, wire.OPEN ^ 0xFFFFFFFF),
        b"GET / HTTP/1.1\r\nHost: x\r\n",
    ],
    ids=["magic", "payload past what was agreed on", "not adb at all"],
)
def test_an_invalid_message_ends_the_connection(alone: StandInPhone, header: bytes) -> None:
    with Host(alone) as host:
        host.connect()
        host.send_bytes(header)
        assert host.is_shut_out()


def test_nothing_is_opened_before_the_host_is_let_in(alone: StandInPhone) -> None:
    shells = alone.counters.shells
    with Host(alone) as host:
        host.send(wire.CNXN, wire.VERSION, 1 << 20, b"host::")
        assert host.receive().command == wire.AUTH
        host.send(wire.OPEN, 7, 0, b"exec:true\0")
        host.send(wire.AUTH, wire.SIGNATURE, 0, bytes(256))
        answer = host.receive()
        assert (answer.command, answer.arg0) == (wire.AUTH, wire.TOKEN)  # asked again
    assert alone.counters.shells == shells


def test_an_unknown_service_is_refused(alone: StandInPhone) -> None:
    with Host(alone) as host:
        host.connect()
        host.send(wire.OPEN, 7, 0, b"jdwp:1\0")
        answer = host.receive()
        assert (answer.command, answer.arg0, answer.arg1) == (wire.CLSE, 0, 7)
