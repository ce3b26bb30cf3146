"""The phone binary inside an Android app: an AAR for apps and an APK for tests over adb, with device_runtime/java.

docs/android.md says how to add training to a keyboard app.
"""

from phonograd.android_harness.app.aar import Aar, build_aar
from phonograd.android_harness.app.apk import Apk, build_apk
from phonograd.android_harness.app.maven import MavenRelease, release_to_maven
from phonograd.android_harness.app.toolchain import Tools, find_tools

__all__ = ["Aar", "Apk", "MavenRelease", "Tools", "build_aar", "build_apk", "find_tools", "release_to_maven"]
