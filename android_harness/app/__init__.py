"""The phone binary inside an Android app: the APK of device_runtime/java, which adb installs.

docs/android.md is the page for whoever puts them into a keyboard.
"""

from phonograd.android_harness.app.apk import Apk, build_apk
from phonograd.android_harness.app.toolchain import Tools, find_tools

__all__ = ["Apk", "Tools", "build_apk", "find_tools"]
