"""What a session that could not clean up left on a phone: after a reboot, or after Android killed its watchdog."""

import contextlib
import secrets

from phonograd.android_harness.adb.client import Adb
from phonograd.android_harness.errors import PhoneLostError
from phonograd.android_harness.session.settings import SessionSettings
from phonograd.android_harness.session.watchdog import Watchdog, phone_script

_WORDS = {"undo": "settings that it changed", "run": "its texts", "lock": "its lock"}


def find_leftovers(adb: Adb, serial: str, settings: SessionSettings | None = None) -> tuple[str, ...]:
    """What an earlier session left, in words; empty if nothing, while a session holds the phone, or if it is lost."""
    folder, names = (settings or SessionSettings()).folder, list[str]()
    with contextlib.suppress(PhoneLostError):
        names = adb.shell(serial, phone_script("lock.sh", "leftovers.sh", folder=folder)).out.split()
    return tuple(words for name, words in _WORDS.items() if name in names)


def restore_phone(adb: Adb, serial: str, settings: SessionSettings | None = None) -> None:
    """Restore the settings that an earlier session changed, and remove all files of sessions, kept ones too.

    Raises PhoneBusyError while a session holds the phone, PhoneStorageError, PhoneLostError.
    """
    Watchdog(adb, serial, settings or SessionSettings(), secrets.token_hex(8)).end(keep=False)
