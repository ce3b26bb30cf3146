"""Screen, doze and battery saver: each can slow a phone down, so they are read and, on request, kept from doing so."""

import re

from phonograd.android_harness.adb.client import Adb
from phonograd.android_harness.result import PowerState
from phonograd.android_harness.session.watchdog import phone_script

_WAKEFULNESS = re.compile(r"\s*mWakefulness=([A-Za-z]{1,20})\s*")
_DOZE = re.compile(r"doze ([A-Z_]{1,40})(?: ([A-Z_]{1,40}))?\s*")
# States of Android's device idle controller in which background work is deferred.
_DOZING = frozenset({"IDLE", "IDLE_MAINTENANCE"})
# The setting is null until it is first turned on.
_SAVER = {"saver 0": False, "saver null": False, "saver 1": True}


def read_power_states(adb: Adb, serial: str, folder: str, keep_awake: bool) -> tuple[PowerState, PowerState]:
    """The state before and after; with `keep_awake`, turn the screen on, doze and battery saver off in between.

    The changes are recorded in `folder`, and the watchdog undoes them. Raises PhoneLostError.
    """
    done = adb.shell(serial, phone_script("stay_awake.sh", folder=folder, keep_awake="yes" if keep_awake else "no"))
    _, *answers = done.out.split("state\n")
    states = [parse_power_state(answer) for answer in answers] or [PowerState(None, None, None)]
    return states[0], states[-1]


def parse_power_state(text: str) -> PowerState:
    """Parse one state printed by on_phone/stay_awake.sh; None for what is missing or not understood."""
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
