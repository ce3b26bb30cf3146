"""The phone binary inside an Android app: Java classes to copy (java/), and the APK of them that adb installs.

docs/android.md is the page for whoever puts them into a keyboard.
"""

from android_harness.app.apk import Apk, build_apk
from android_harness.app.toolchain import Tools, find_tools

__all__ = ["Apk", "Tools", "build_apk", "find_tools"]
