"""ADB's messages on the wire: six little-endian words, then a payload (AOSP: packages/modules/adb/protocol.txt)."""

import struct
from dataclasses import dataclass


def _command(name: str) -> int:
    return int.from_bytes(name.encode(), "little")


CNXN, AUTH, OPEN, OKAY, WRTE, CLSE = map(_command, ("CNXN", "AUTH", "OPEN", "OKAY", "WRTE", "CLSE"))
TOKEN, SIGNATURE, RSAPUBLICKEY = 1, 2, 3

VERSION_WITH_CHECKSUM = 0x01000000
VERSION = 0x01000001
MAX_PAYLOAD = 1 << 20
MAX_PAYLOAD_WITH_CHECKSUM = 4096

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


def checksum(payload: bytes) -> int:
    """The sum of the payload's bytes, modulo 2^32."""
    return sum(payload) & 0xFFFFFFFF


def encode(message: Message, version: int) -> bytes:
    """A message's bytes; the checksum is left at 0 from version 0x01000001 on, but for CNXN and AUTH."""
    summed = version < VERSION or message.command in {CNXN, AUTH}
    check = checksum(message.payload) if summed else 0
    words = (message.command, message.arg0, message.arg1, len(message.payload), check, message.command ^ 0xFFFFFFFF)
    return HEADER.pack(*words) + message.payload


def decode_header(header: bytes) -> tuple[Message, int, int]:
    """A message without its payload, the payload's length, and its checksum. ProtocolError: not a header of ADB's."""
    command, arg0, arg1, length, check, magic = HEADER.unpack(header)
    if magic != command ^ 0xFFFFFFFF:
        raise ProtocolError(f"magic {magic:#x} does not fit command {command:#x}")
    if length > MAX_PAYLOAD:
        raise ProtocolError(f"a payload of {length} bytes; at most {MAX_PAYLOAD} were agreed on")
    return Message(command, arg0, arg1), length, check
