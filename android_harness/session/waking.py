"""What Android may slow a phone down for while it works: its screen, doze and battery saver, read and held off."""

import re

from phonograd.android_harness.adb.client import Adb
from phonograd.android_harness.result import PowerState
from phonograd.android_harness.session.keeper import phone_script

_WAKEFULNESS = re.compile(r"\s*mWakefulness=([A-Za-z]{1,20})\s*")
_DOZE = re.compile(r"doze ([A-Z_]{1,40})(?: ([A-Z_]{1,40}))?\s*")
# States of Android's device idle controller in which background work waits; in all others it does not.
_DOZING = frozenset({"IDLE", "IDLE_MAINTENANCE"})
# The setting is not there before somebody turns it on.
_SAVER = {"saver 0": False, "saver null": False, "saver 1": True}


def read_power(adb: Adb, serial: str, folder: str, hold: bool) -> tuple[PowerState, PowerState]:
    """How the phone is, and how it is then; with `hold` it is asked in between to stay awake and at full speed.

    What was changed is noted in `folder`, for the keeper to change back. Raises PhoneLostError.
    """
    done = adb.shell(serial, phone_script("awake.sh", folder=folder, hold="yes" if hold else "no"))
    _, *answers = done.out.split("state\n")
    states = [parse_power(answer) for answer in answers] or [PowerState(None, None, None)]
    return states[0], states[-1]


def parse_power(text: str) -> PowerState:
    """What on_phone/awake.sh prints of one moment; None for what is not there or not understood."""
    screen_on = dozing = battery_saver = None
    for line in text.splitlines():
        wakefulness, doze = _WAKEFULNESS.fullmatch(line), _DOZE.fullmatch(line)
        if wakefulness is not None:
            screen_on = wakefulness[1] == "Awake"
        elif doze is not None:
            dozing = not _DOZING.isdisjoint(doze.groups())
        else:
            battery_saver = _SAVER.get(line.strip(), battery_saver)
    return PowerState(screen_on, dozing, battery_saver)
