"""ADB's messages on the wire: six little-endian words, then a payload (AOSP: packages/modules/adb/protocol.txt)."""

import struct
from dataclasses import dataclass


def _command(name: str) -> int:
    return int.from_bytes(name.encode(), "little")


CNXN, AUTH, OPEN, OKAY, WRTE, CLSE = map(_command, ("CNXN", "AUTH", "OPEN", "OKAY", "WRTE", "CLSE"))
TOKEN, SIGNATURE, RSAPUBLICKEY = 1, 2, 3

VERSION = 0x01000001
MAX_PAYLOAD = 1 << 20

HEADER = struct.Struct("<6I")


class ProtocolError(Exception):
    """The other side breaks the protocol; a real adbd ends the connection."""


@dataclass(frozen=True)
class Message:
    """One message; what its arguments mean depends on the command."""

    command: int
    arg0: int
    arg1: int
    payload: bytes = b""


def encode(message: Message) -> bytes:
    """A message's bytes; the checksum is left at 0, as since version 0x01000001, but for CNXN and AUTH."""
    check = sum(message.payload) & 0xFFFFFFFF if message.command in {CNXN, AUTH} else 0
    words = (message.command, message.arg0, message.arg1, len(message.payload), check, message.command ^ 0xFFFFFFFF)
    return HEADER.pack(*words) + message.payload


def decode_header(header: bytes) -> tuple[Message, int]:
    """A message without its payload, and the payload's length. ProtocolError: not a header of ADB's."""
    command, arg0, arg1, length, _check, magic = HEADER.unpack(header)
    if magic != command ^ 0xFFFFFFFF:
        raise ProtocolError(f"magic {magic:#x} does not fit command {command:#x}")
    if length > MAX_PAYLOAD:
        raise ProtocolError(f"a payload of {length} bytes; at most {MAX_PAYLOAD} were agreed on")
    return Message(command, arg0, arg1), length
