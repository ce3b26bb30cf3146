"""Ed25519 keys in files: a phone's, and the vendor's, which certifies phones. FORMAT.md, "Masked rounds"."""

import ctypes
from pathlib import Path

from phonograd.device_runtime.engine.c_abi import encoded, load_library


def new_key(path: Path) -> str:
    """Make a key in a new file, readable by its owner alone. Returns the public key, hex. Raises StorageError."""
    return _text("pg_identity_new", 65, path)


def public_key(path: Path) -> str:
    """The public key of a key file, hex. Raises StorageError, StateError for a file that is none."""
    return _text("pg_identity_public", 65, path)


def certificate(vendor: Path, phone: str, key: str) -> str:
    """The certificate, hex, of a phone's name and public key, by the vendor's key file. Raises UsageError, too."""
    return _text("pg_identity_certify", 129, vendor, encoded(phone), encoded(key))


def _text(name: str, size: int, *given: object) -> str:
    out = ctypes.create_string_buffer(size)
    load_library().call(name, *given, ctypes.addressof(out))
    return out.value.decode()
