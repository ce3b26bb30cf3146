"""The stand-in's side of the wire, with a host written here: what the real clients of today no longer send."""

import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.phone.stand_in import StandInPhone, keys
from tests.phone.stand_in import messages as wire
from tests.phone.stand_in.messages import Message
from tests.phone.stand_in.shell import Request
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.standin


class Host:
    """A host that sends the messages that a test gives it."""

    def __init__(self, phone: StandInPhone, version: int):
        self.version = version
        self._socket = socket.create_connection(("127.0.0.1", phone.port), timeout=PATIENCE_SECONDS)

    def __enter__(self) -> "Host":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, command: int, arg0: int, arg1: int, payload: bytes = b"") -> None:
        self.send_bytes(wire.encode(Message(command, arg0, arg1, payload), self.version))

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> tuple[Message, int]:
        """The next message, and its checksum."""
        header, length, check = wire.decode_header(self._exactly(wire.HEADER.size))
        return Message(header.command, header.arg0, header.arg1, self._exactly(length)), check

    def is_shut_out(self) -> bool:
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def connect(self) -> Message:
        """Say hello, be asked for a signature, offer a key, and be let in."""
        self.send(wire.CNXN, self.version, 1 << 20, b"host::features=shell_v2")
        assert self.receive()[0].command == wire.AUTH
        self.send(wire.AUTH, wire.RSAPUBLICKEY, 0, b"a key test@host\0")
        return self.receive()[0]

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
    with Host(alone, wire.VERSION) as host:
        answer = host.connect()
    assert (answer.command, answer.arg0, answer.arg1) == (wire.CNXN, wire.VERSION, 1 << 20)
    assert answer.payload == (
        b"device::ro.product.name=standin_a76;ro.product.model=Stand-in A76;ro.product.device=standin_a76;"
        b"features=shell_v2,cmd,stat_v2,ls_v2,fixed_push_mkdir,sendrecv_v2,fixed_push_symlink_timestamp"
    )


def test_an_old_host_gets_checksums_and_small_payloads(alone: StandInPhone) -> None:
    with Host(alone, wire.VERSION_WITH_CHECKSUM) as host:
        assert host.connect().command == wire.CNXN
        host.send(wire.OPEN, 7, 0, b"exec:head -c 10000 /dev/zero | tr '\\0' x\0")
        okay, _ = host.receive()
        assert (okay.command, okay.arg1) == (wire.OKAY, 7)
        received = b""
        while len(received) < 10000:
            message, check = host.receive()
            assert message.command == wire.WRTE
            assert len(message.payload) <= 4096
            assert check == sum(message.payload)
            received += message.payload
            host.send(wire.OKAY, 7, okay.arg0)
        assert received == b"x" * 10000


def test_nothing_is_sent_before_the_last_message_is_acknowledged(alone: StandInPhone) -> None:
    with Host(alone, wire.VERSION) as host:
        host.connect()
        host.send(wire.OPEN, 7, 0, b"exec:echo first; sleep 0.2; echo second\0")
        okay, _ = host.receive()
        assert host.receive()[0].payload == b"first\n"
        host.send(wire.OPEN, 8, 0, b"shell,v2,raw:sleep 0.6\0")  # in the meantime
        assert [host.receive()[0].arg1 for _ in range(2)] == [8, 8]  # opened, and its exit code
        host.send(wire.OKAY, 7, okay.arg0)
        assert host.receive()[0].payload == b"second\n"


def test_a_wrong_checksum_of_an_old_host_ends_the_connection(alone: StandInPhone) -> None:
    with Host(alone, wire.VERSION_WITH_CHECKSUM) as host:
        host.connect()
        good = wire.encode(Message(wire.OPEN, 7, 0, b"exec:true\0"), host.version)
        host.send_bytes(good[:16] + struct.pack("<I", 1) + good[20:])
        assert host.is_shut_out()


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
    with Host(alone, wire.VERSION) as host:
        host.connect()
        host.send_bytes(header)
        assert host.is_shut_out()


def test_nothing_is_opened_before_the_host_is_let_in(alone: StandInPhone) -> None:
    shells = alone.counters.shells
    with Host(alone, wire.VERSION) as host:
        host.send(wire.CNXN, wire.VERSION, 1 << 20, b"host::")
        assert host.receive()[0].command == wire.AUTH
        host.send(wire.OPEN, 7, 0, b"exec:true\0")
        host.send(wire.AUTH, wire.SIGNATURE, 0, bytes(256))
        answer, _ = host.receive()
        assert (answer.command, answer.arg0) == (wire.AUTH, wire.TOKEN)  # asked again
    assert alone.counters.shells == shells


def test_an_unknown_service_is_refused(alone: StandInPhone) -> None:
    with Host(alone, wire.VERSION) as host:
        host.connect()
        host.send(wire.OPEN, 7, 0, b"jdwp:1\0")
        answer, _ = host.receive()
        assert (answer.command, answer.arg0, answer.arg1) == (wire.CLSE, 0, 7)


@given(st.binary(max_size=100))
def test_no_bytes_are_a_key_or_a_signature_by_accident(data: bytes) -> None:
    assert keys.HostKey.parse(data) is None
    modulus = (1 << 2047) + 1
    assert not keys.HostKey(modulus, 65537).signed(bytes(20), data)


def test_the_trusted_hosts_are_a_file(tmp_path: Path) -> None:
    known = keys.KnownHosts(tmp_path / "new/adb_keys")
    assert not known.signed(os.urandom(20), bytes(256))
    known.trust(b"AAAA one@host\0")
    known.trust(b"BBBB two@host\0")
    assert (tmp_path / "new/adb_keys").read_bytes() == b"AAAA one@host\nBBBB two@host\n"


@pytest.mark.parametrize(
    ("service", "expected"),
    [
        ("shell,v2,raw:ls", Request("ls", protocol=True, terminal=False)),
        ("shell,v2,TERM=xterm,raw:a:b", Request("a:b", protocol=True, terminal=False, terminal_type="xterm")),
        ("shell,v2,TERM=xterm,pty:", Request("", protocol=True, terminal=True, terminal_type="xterm")),
        ("shell:ls", Request("ls", protocol=False, terminal=True)),
        ("shell,raw:ls", Request("ls", protocol=False, terminal=True, terminal_raw=True)),
        ("exec:ls", Request("ls", protocol=False, terminal=True, terminal_raw=True)),
    ],
)
def test_what_a_services_name_asks_for(service: str, expected: Request) -> None:
    assert Request.parse(service) == expected
