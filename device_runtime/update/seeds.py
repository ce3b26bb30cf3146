"""The seed of a phone's part in a round. FORMAT.md, "Seeds"."""

import hashlib
import secrets

SEED_BYTES = 7  # a number of at most 17 digits: update files hold 18


def seed_of(base_sha256: str, round_number: int, phone: str) -> int:
    """The first 7 bytes of the SHA-256 of "BASE ROUND PHONE", big endian.

    base_sha256: hex identity of the model that training starts from; phone: its name at the server.
    """
    rule = f"{base_sha256} {round_number} {phone}".encode()
    return int.from_bytes(hashlib.sha256(rule).digest()[:SEED_BYTES], "big")


def random_seed() -> int:
    """A seed from the system's random source, for training that no phone's name is known of."""
    return secrets.randbits(8 * SEED_BYTES)
