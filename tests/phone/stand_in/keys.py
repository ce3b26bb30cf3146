"""The RSA keys by which a phone knows a host: adb's public key format, and its signatures.

A key's line is base64 of: modulus size in words, n0inv, the modulus, R^2 (both little-endian), the exponent; then a
space and a name. A host signs the phone's 20-byte token as if it were a SHA-1 digest (PKCS #1 v1.5).
"""

import base64
import binascii
import hmac
import struct
from dataclasses import dataclass
from pathlib import Path

TOKEN_BYTES = 20
_WORDS = 64
_LAYOUT = struct.Struct(f"<II{4 * _WORDS}s{4 * _WORDS}sI")
_SHA1_DIGEST_INFO = bytes.fromhex("3021300906052b0e03021a05000414")


@dataclass(frozen=True)
class HostKey:
    """One host's public key."""

    modulus: int
    exponent: int

    @classmethod
    def parse(cls, line: bytes) -> "HostKey | None":
        """The key of a line; None if it is none."""
        try:
            words, _n0inv, modulus, _rr, exponent = _LAYOUT.unpack(base64.b64decode(line.split()[0], validate=True))
        except (IndexError, binascii.Error, struct.error):
            return None
        return cls(int.from_bytes(modulus, "little"), exponent) if words == _WORDS else None

    def signed(self, token: bytes, signature: bytes) -> bool:
        """Whether this key's owner signed the token."""
        size = 4 * _WORDS
        message = _SHA1_DIGEST_INFO + token
        padded = b"\x00\x01" + b"\xff" * (size - len(message) - 3) + b"\x00" + message
        value = pow(int.from_bytes(signature, "big"), self.exponent, self.modulus)
        return hmac.compare_digest(value.to_bytes(size, "big"), padded)


class KnownHosts:
    """The file of the hosts that the phone trusts, a line each; it outlives a reboot."""

    def __init__(self, path: Path):
        self._path = path

    def signed(self, token: bytes, signature: bytes) -> bool:
        """Whether one of the trusted hosts signed the token."""
        lines = self._path.read_bytes().splitlines() if self._path.exists() else []
        keys = filter(None, map(HostKey.parse, lines))
        return any(key.signed(token, signature) for key in keys)

    def trust(self, line: bytes) -> None:
        """Trust a host from now on."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            file.write(line.strip(b"\0 \n") + b"\n")
