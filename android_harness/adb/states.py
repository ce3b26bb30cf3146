"""The states in which adb lists a phone, and the fix for each that is not "device"."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

ONLINE = "device"
ABSENT = "absent"


@dataclass(frozen=True)
class Problem:
    """Why a phone cannot be used, and what its owner can do."""

    reason: str
    cure: str


PROBLEMS: Mapping[str, Problem] = {
    "unauthorized": Problem(
        "it has not authorised this computer for USB debugging",
        'unlock it and tap Allow on its screen; if nothing shows, "Revoke USB debugging authorisations" in its '
        "developer options and plug it in again",
    ),
    "authorizing": Problem(
        "it is asking whether to allow this computer", "unlock it and tap Allow on its screen; then repeat"
    ),
    "connecting": Problem("it is still connecting", "wait some seconds and repeat"),
    "offline": Problem(
        "adb sees it, but it does not answer",
        "unplug it and plug it in again, or restart it; over the network: adb disconnect, then adb connect",
    ),
    "no permissions": Problem(
        "this user has no permission for its USB device",
        "install the udev rules (Debian: apt install android-sdk-platform-tools-common), add the user to group "
        "plugdev, log in again, plug it in again",
    ),
    "recovery": Problem("it is in recovery mode", "choose Reboot system now on its screen"),
    "rescue": Problem("it is in rescue mode", "choose Reboot system now on its screen"),
    "sideload": Problem("it is waiting for a sideloaded update", "choose Reboot system now on its screen"),
    "bootloader": Problem("it is in its bootloader", "run fastboot reboot, or hold its power button"),
    "detached": Problem("another program has taken it from adb", "run adb attach, or plug it in again"),
    "host": Problem("it is a computer, not a phone", "choose a phone by its serial"),
    ABSENT: Problem("adb does not list it", "plug it in, turn USB debugging on; adb devices shows the serials"),
}


def problem(state: str) -> Problem:
    """The problem of a phone in a state other than "device"."""
    return PROBLEMS.get(state) or Problem(f"adb's state for it is {state!r}", "plug it in again, or restart it")


# What adb prints when it cannot work, and the state that this means.
_STATE_MESSAGES = (
    (r"unauthorized", "unauthorized"),
    (r"still authorizing", "authorizing"),
    (r"still connecting", "connecting"),
    (r"device offline", "offline"),
    (r"insufficient permissions|no permissions", "no permissions"),
    (r"device .*not found|no devices/emulators found", ABSENT),
)


def state_in_messages(text: str) -> str | None:
    """The state that adb's messages name, if any; the output of a script on the phone is not searched."""
    messages = "\n".join(line for line in text.splitlines() if line.startswith(("adb: ", "error: ")))
    return next((state for pattern, state in _STATE_MESSAGES if re.search(pattern, messages)), None)


@dataclass(frozen=True)
class AdbDevice:
    """A phone in adb's list. `properties` may have product, model, device, usb and transport_id."""

    serial: str
    state: str
    properties: Mapping[str, str]

    @property
    def full_name(self) -> str:
        """The serial and where the phone is, which tells phones with one serial apart."""
        place = next((f"{name}:{self.properties[name]}" for name in _PLACES if name in self.properties), "")
        return f"{self.serial}@{place}"

    def is_called(self, name: str) -> bool:
        """Whether it is what adb would take by `-s NAME`, or has that full name; spaces at the ends don't count."""
        properties = [f"{key}:{value}" for key, value in self.properties.items()]
        return name.strip() in (self.serial.strip(), self.full_name.strip(), *properties)


_PLACES = ("usb", "transport_id")
_STATES = "|".join([ONLINE, *(state for state in PROBLEMS if state != ABSENT), "unknown"])
_STATE = rf"(?P<state>{_STATES})(?=[\s;]|$)(?P<rest>.*)"
_WIDTH = 22  # adb pads serials to it, which may contain spaces and words such as device
_LINES = [
    re.compile(rf"(?P<serial>.{{{_WIDTH},}}?) {_STATE}"),
    re.compile(rf"(?P<serial>.*?\S)\s+{_STATE}"),
    re.compile(r"(?P<serial>\S+)\s+(?P<state>\S+)(?P<rest>.*)"),
]
_PROPERTY = re.compile(r"(?:^|(?<=\s))(\w+):(\S+)")
HEADER = "List of devices attached"


def parse_devices(text: str, short: str = "") -> list[AdbDevice]:
    """The phones in the output of `adb devices -l`; other lines are ignored.

    short: the output of `adb devices`, for the spaces at the end of a serial.
    """
    phones = []
    for line in text.partition(HEADER)[2].splitlines():
        match = next(filter(None, (pattern.match(line) for pattern in _LINES)), None)
        if match is not None and not line.startswith(("*", "adb: ", "error: ")):
            serial = match["serial"].rstrip() if len(match["serial"]) <= _WIDTH else match["serial"]
            phones.append(AdbDevice(serial, match["state"], dict(_PROPERTY.findall(match["rest"]))))
    exact = [line.rpartition("\t")[0] for line in short.partition(HEADER)[2].splitlines() if "\t" in line]
    if [serial.rstrip() for serial in exact] == [phone.serial.rstrip() for phone in phones]:
        return [replace(phone, serial=serial) for phone, serial in zip(phones, exact, strict=True)]
    return phones
