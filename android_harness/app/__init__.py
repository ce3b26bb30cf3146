"""The phone binary inside an Android app: builds an APK from device_runtime/java, for tests over adb.

docs/android.md says how to add training to a keyboard app.
"""

from phonograd.android_harness.app.apk import Apk, build_apk
from phonograd.android_harness.app.toolchain import Tools, find_tools

__all__ = ["Apk", "Tools", "build_apk", "find_tools"]
