"""What a phone is called at the server, and which text is its own."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from phonograd.device_runtime.base.errors import TextError, UsageError
from phonograd.device_runtime.client.protocol import PHONE_NAME, PHONE_NAME_RULE

_ODD = re.compile(r"[^A-Za-z0-9._-]")
NAME_LENGTH = 64


def phone_name(serial: str) -> str:
    """A serial as a phone's name: what a name can't hold becomes `_`, cut at 64 characters."""
    return _ODD.sub("_", serial)[:NAME_LENGTH]


def phone_names(serials: Sequence[str], chosen: Mapping[str, str]) -> dict[str, str]:
    """The name of each serial: the chosen one, else its own.

    Raises UsageError for a name the server would refuse, one that two phones have, or a choice for no phone of these.
    """
    for serial, name in chosen.items():
        if serial not in serials:
            raise UsageError(
                f"name {serial}={name}: the serial of a phone of this round expected; see phonograd devices"
            )
        if not PHONE_NAME.match(name):
            raise UsageError(f"name {serial}={name[:80]}: {PHONE_NAME_RULE} expected as a name; choose another")
    names = {serial: chosen.get(serial) or phone_name(serial) for serial in serials}
    owners: dict[str, str] = {}
    for serial, name in names.items():
        if (other := owners.setdefault(name, serial)) != serial:
            raise UsageError(
                f"phones {other} and {serial}: both would be called {name}; choose with --name SERIAL=NAME"
            )
    return names


def text_of(folder: Path, serial: str, name: str) -> Path:
    """The phone's text in `folder`: SERIAL.txt, with `_` for what file names lack as well, or NAME.txt.

    Raises TextError if there is none.
    """
    stems = dict.fromkeys((serial, phone_name(serial), name))
    for stem in stems:
        path = folder / f"{stem}.txt"
        if "/" not in stem and path.is_file():
            return path
    expected = " or ".join(f"{stem}.txt" for stem in stems)
    raise TextError(f"{folder}: {expected} expected, the text of phone {serial}; not found")
