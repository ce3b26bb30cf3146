"""Tokens: made, hashed, compared in constant time, found in a request; and how long they last: 90d, 12h, never."""

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, field

from starlette.datastructures import Headers

from phonograd.device_runtime.client.protocol import TOKEN

# No secret has this hash: what an unknown id is compared with, so that it costs what a known one costs.
NO_HASH = "0" * 64

DEFAULT_LIFETIME = "90d"
# A rotated phone's old tokens go on this long, so that the phone can pick up the new one.
DEFAULT_OVERLAP = "1d"
LIFETIME_RULE = "a number and s, m, h or d (90d), 10 years at most, or never"

LIFETIME = re.compile(r"([0-9]{1,9})([smhd])\Z")
UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
MAX_SECONDS = 3650 * 86400
MAX_HEADER_CHARACTERS = 512


@dataclass(frozen=True)
class NewToken:
    """A token on its way to its owner: the only moment the server knows the secret."""

    id: str
    secret: str = field(repr=False)

    @classmethod
    def make(cls) -> "NewToken":
        """A fresh token of the system's randomness."""
        return cls(secrets.token_hex(8), secrets.token_hex(32))

    @classmethod
    def parse(cls, text: str) -> "NewToken | None":
        """The parts of `pgd_<id>_<secret>`; None for any other text."""
        match = TOKEN.match(text)
        return cls(match[1], match[2]) if match else None

    @property
    def text(self) -> str:
        """The token as its owner sends it."""
        return f"pgd_{self.id}_{self.secret}"

    @property
    def sha256(self) -> str:
        """Hex hash of the secret: what the server keeps."""
        return hashlib.sha256(self.secret.encode()).hexdigest()

    def belongs_to(self, sha256: str | None) -> bool:
        """Return whether the secret has the hash that is kept for its id (None: an unknown id); in constant time."""
        return hmac.compare_digest(self.sha256, sha256 or NO_HASH)


def lifetime_seconds(text: str) -> float | None:
    """Seconds of a lifetime such as `90d`; None for `never`. Raises ValueError for anything else."""
    if text == "never":
        return None
    match = LIFETIME.match(text)
    seconds = int(match[1]) * UNIT_SECONDS[match[2]] if match else -1
    if not 0 <= seconds <= MAX_SECONDS:
        raise ValueError(f"{LIFETIME_RULE} expected, found {text[:40]!r}")
    return float(seconds)


def offered_token(headers: Headers) -> str | None:
    """The token a request shows; None if it shows none, "" if it is malformed.

    `Bearer TOKEN` (RFC 6750), or `Basic`, as browsers ask people for it: any user name, the token as password.
    """
    values = headers.getlist("Authorization")
    if not values:
        return None
    if len(values) > 1 or len(values[0]) > MAX_HEADER_CHARACTERS:
        return ""
    scheme, _, text = values[0].partition(" ")
    if scheme.lower() == "bearer":
        return text.strip()
    if scheme.lower() == "basic":
        return _password(text.strip())
    return ""


def _password(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode("ascii").partition(":")[2]
    except (binascii.Error, ValueError):
        return ""
