"""Screen, doze and battery saver: each can slow a phone down, so they are read and, on request, kept from doing so."""

import re

from phonograd.android_harness.adb.client import Adb
from phonograd.android_harness.result import KeptAwake, PowerState
from phonograd.android_harness.session.watchdog import phone_script

_WAKEFULNESS = re.compile(r"\s*mWakefulness=([A-Za-z]{1,20})\s*")
_DOZE = re.compile(r"doze ([A-Z_]{1,40})(?: ([A-Z_]{1,40}))?\s*")
# States of Android's device idle controller in which background work is deferred.
_DOZING = frozenset({"IDLE", "IDLE_MAINTENANCE"})
# The setting is null until it is first turned on.
_SAVER = {"saver 0": False, "saver null": False, "saver 1": True}


def read_power_states(adb: Adb, serial: str, folder: str, keep_awake: bool) -> tuple[PowerState, PowerState, KeptAwake]:
    """The state before and after; with `keep_awake`, keep the screen on, doze and battery saver off in between.

    The third says what was changed for that.

    The changes are recorded in `folder`, and the watchdog undoes them. Raises PhoneLostError.
    """
    done = adb.shell(serial, phone_script("stay_awake.sh", folder=folder, keep_awake="yes" if keep_awake else "no"))
    _, *answers = done.out.split("state\n")
    states = [parse_power_state(answer) for answer in answers] or [PowerState(None, None, None)]
    words = [line.split() for line in done.out.splitlines()]
    changed, refused = (tuple(line[1] for line in words if line[:1] == [what]) for what in ("changed", "refused"))
    return states[0], states[-1], KeptAwake(changed, refused)


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
