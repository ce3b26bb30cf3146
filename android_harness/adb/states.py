"""The states in which adb lists a phone, and what to do about each but "device"."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

ATTACHED = "device"
ABSENT = "absent"


@dataclass(frozen=True)
class Trouble:
    """Why nothing can be asked of a phone, and what its owner can do."""

    reason: str
    cure: str


TROUBLES: Mapping[str, Trouble] = {
    "unauthorized": Trouble(
        "it has not allowed this computer to debug it",
        'unlock it and tap Allow on its screen; if nothing shows, "Revoke USB debugging authorisations" in its '
        "developer options and plug it in again",
    ),
    "authorizing": Trouble(
        "it is being asked whether it allows this computer", "unlock it and tap Allow on its screen; then repeat"
    ),
    "connecting": Trouble("it is still connecting", "wait some seconds and repeat"),
    "offline": Trouble(
        "adb sees it, but it does not answer",
        "unplug it and plug it in again, or restart it; over the network: adb disconnect, then adb connect",
    ),
    "no permissions": Trouble(
        "this user may not open its USB device",
        "install the udev rules (Debian: apt install android-sdk-platform-tools-common), add the user to group "
        "plugdev, log in anew, plug it in again",
    ),
    "recovery": Trouble("it is in recovery mode", "choose Reboot system now on its screen"),
    "rescue": Trouble("it is in rescue mode", "choose Reboot system now on its screen"),
    "sideload": Trouble("it waits for an update to be sideloaded", "choose Reboot system now on its screen"),
    "bootloader": Trouble("it is in its bootloader", "run fastboot reboot, or hold its power button"),
    "detached": Trouble("another program has taken it from adb", "run adb attach, or plug it in again"),
    "host": Trouble("it is a computer, no phone", "choose a phone by its serial"),
    ABSENT: Trouble("adb does not list it", "plug it in, turn USB debugging on; adb devices shows the serials"),
}


def trouble(state: str) -> Trouble:
    """What is wrong with a phone in a state other than "device"."""
    return TROUBLES.get(state) or Trouble(f"adb calls its state {state!r}", "plug it in again, or restart it")


# What adb prints in place of doing its work, and the state that means.
_SAID = (
    (r"unauthorized", "unauthorized"),
    (r"still authorizing", "authorizing"),
    (r"still connecting", "connecting"),
    (r"device offline", "offline"),
    (r"insufficient permissions|no permissions", "no permissions"),
    (r"device .*not found|no devices/emulators found", ABSENT),
)


def said_state(text: str) -> str | None:
    """The state that adb's messages tell of, if any; what a script on the phone printed is none of them."""
    messages = "\n".join(line for line in text.splitlines() if line.startswith(("adb: ", "error: ")))
    return next((state for pattern, state in _SAID if re.search(pattern, messages)), None)


@dataclass(frozen=True)
class Attached:
    """A phone in adb's list. Of `properties` adb knows product, model, device, usb and transport_id, or fewer."""

    serial: str
    state: str
    properties: Mapping[str, str]


_STATES = "|".join([ATTACHED, *(state for state in TROUBLES if state != ABSENT), "unknown"])
_LINE = re.compile(rf"(?P<serial>.*?\S)\s+(?P<state>{_STATES})(?=[\s;]|$)(?P<rest>.*)")
_PROPERTY = re.compile(r"(?:^|(?<=\s))(\w+):(\S+)")
HEADER = "List of devices attached"


def parse_list(text: str) -> list[Attached]:
    """The phones in what `adb devices -l` printed after its header; what is no phone's line is passed over."""
    phones = []
    for line in text.partition(HEADER)[2].splitlines():
        words = line.split()
        match = _LINE.match(line)
        if match is not None:
            properties = dict(_PROPERTY.findall(match["rest"]))
            phones.append(Attached(match["serial"].strip(), match["state"], properties))
        elif len(words) >= 2 and not line.startswith(("*", "adb: ", "error: ")):
            phones.append(Attached(words[0], words[1], dict(_PROPERTY.findall(line))))
    return phones
