"""Tokens: made, hashed, compared in constant time."""

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field

from phonograd.device_runtime.client.protocol import TOKEN

# No secret has this hash: what an unknown id is compared with, so that it costs what a known one costs.
NO_HASH = "0" * 64


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
        """What its owner sends."""
        return f"pgd_{self.id}_{self.secret}"

    @property
    def sha256(self) -> str:
        """Hex hash of the secret: what the server keeps."""
        return hashlib.sha256(self.secret.encode()).hexdigest()

    def belongs_to(self, sha256: str | None) -> bool:
        """Whether the secret has the hash that is kept for its id (None: there is no such id); in constant time."""
        return hmac.compare_digest(self.sha256, sha256 or NO_HASH)
