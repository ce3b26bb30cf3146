"""Names of phones at the server, and their texts."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from phonograd.device_runtime.base.errors import TextError, UsageError
from phonograd.device_runtime.client.protocol import PHONE_NAME, PHONE_NAME_RULE

_ODD = re.compile(r"[^A-Za-z0-9._-]")
NAME_LENGTH = 64


def name_from_serial(serial: str) -> str:
    """The name for a serial: characters that names can't have become `_`, and it is cut at 64 characters."""
    name = _ODD.sub("_", serial)[:NAME_LENGTH]
    return name if PHONE_NAME.match(name) else name.replace(".", "_")


def phone_names(serials: Sequence[str], chosen: Mapping[str, str]) -> dict[str, str]:
    """The name of each serial: the chosen one, else the one made from the serial.

    Raises UsageError if the server would refuse a name, two phones have the same, or a chosen name's serial is unknown.
    """
    for serial, name in chosen.items():
        if serial not in serials:
            raise UsageError(
                f"name {serial}={name}: no phone of this round has that serial; phonograd devices lists them"
            )
        if not PHONE_NAME.match(name):
            raise UsageError(f"name {serial}={name[:80]}: not a valid name: {PHONE_NAME_RULE} expected")
    names = {serial: chosen.get(serial) or name_from_serial(serial) for serial in serials}
    owners: dict[str, str] = {}
    for serial, name in names.items():
        if (other := owners.setdefault(name, serial)) != serial:
            raise UsageError(
                f"phones {other} and {serial}: both would have the name {name}; choose others with `names`, SERIAL=NAME"
            )
    return names


def find_text(folder: Path, serial: str, name: str) -> Path:
    """The phone's text in `folder`: SERIAL.txt (also with `_` for characters that file names can't have) or NAME.txt.

    Raises TextError without one.
    """
    stems = dict.fromkeys((serial, name_from_serial(serial), name))
    for stem in stems:
        path = folder / f"{stem}.txt"
        if "/" not in stem and path.is_file():
            return path
    expected = " or ".join(f"{stem}.txt" for stem in stems)
    raise TextError(f"{folder}: no text for phone {serial}: {expected} expected")
