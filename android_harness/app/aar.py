"""Build an AAR, which an app's Gradle build takes in: the Java classes, the phone binary, Keyboard's libraries."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from phonograd.android_harness.app.contents import (
    BINARY_NAME,
    LIBRARY_NAME,
    compile_java,
    copy_archive,
    keyboard_library,
    phone_binary,
    write_archive,
)
from phonograd.android_harness.app.toolchain import Tools
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.native_build import ANDROID, check_phone_binary

MANIFEST = Path(__file__).with_name("AndroidManifest-aar.xml")
BINARY = f"jni/{BINARY_NAME}"
LIBRARIES = {abi: f"jni/{abi}/{LIBRARY_NAME}" for abi in ANDROID}
# The example app's own: its manifest lets adb's shell call it.
DEMO_ONLY = frozenset({"ScheduleReceiver.java"})


@dataclass(frozen=True)
class Aar:
    """A built AAR. binary_sha256: of the phone binary inside."""

    path: str
    bytes: int
    sha256: str
    binary_sha256: str


def build_aar(out: Path, tools: Tools, binary: Path | None = None) -> Aar:
    """Build the AAR at `out` with `binary` (None: the phone binary of this version).

    The same tools and binary give the same bytes. It has no rules for code shrinkers: nothing is found by reflection.

    Raises BuildError, StorageError; a file already at `out` is unchanged then.
    """
    with tempfile.TemporaryDirectory(prefix="phonograd-aar-") as folder:
        work = Path(folder)
        binary = binary or phone_binary(work)
        facts = check_phone_binary(binary)
        classes, jar, resources, built = work / "classes", work / "classes.jar", work / "R.txt", work / "built.aar"
        compile_java(classes, tools, without=DEMO_ONLY)
        write_archive(jar, {str(path.relative_to(classes)): path for path in sorted(classes.rglob("*.class"))})
        resources.touch()  # a list of no resources, which the format requires
        files = {"AndroidManifest.xml": MANIFEST, "classes.jar": jar, "R.txt": resources, BINARY: binary}
        write_archive(built, files | {name: keyboard_library(abi) for abi, name in LIBRARIES.items()})
        copy_archive(built, out)
    return Aar(str(out), out.stat().st_size, sha256_of_file(out), facts.sha256)
