"""A stand-in for an Android phone: a real ADB endpoint over loopback TCP, with a small arm64 Android behind it.

`StandInPhone(PhoneSpec(...))` boots one, `AdbServer(adb)` is an adb server for it alone. Nothing here
imports anything but Python's own library; see README.md beside this folder.
"""

from .adb_server import AdbServer
from .phone import StandInError, StandInPhone
from .spec import A53, A76, MAX, PhoneSpec

__all__ = ["A53", "A76", "MAX", "AdbServer", "PhoneSpec", "StandInError", "StandInPhone"]
