"""Build an AAR, which an app's Gradle build takes in: the Java classes, the phone binary, Keyboard's libraries."""

import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from phonograd.android_harness.app.contents import (
    BINARY_NAME,
    EMULATOR_BINARY_NAME,
    LIBRARY_NAME,
    LICENSE_NAME,
    compile_java,
    copy_archive,
    keyboard_library,
    license_file,
    phone_binary,
    tree,
    write_archive,
)
from phonograd.android_harness.app.toolchain import Tools
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.native_build import build_emulator_binary
from phonograd.device_runtime.native_build.checks import check_phone_binary
from phonograd.device_runtime.native_build.targets import ANDROID

MANIFEST = Path(__file__).with_name("AndroidManifest-aar.xml")
# What R8 must keep in an app; Gradle takes them from here.
RULES = Path(__file__).with_name("proguard.txt")
BINARY, EMULATOR_BINARY = f"jni/{BINARY_NAME}", f"jni/{EMULATOR_BINARY_NAME}"
LIBRARIES = {abi: f"jni/{abi}/{LIBRARY_NAME}" for abi in ANDROID}
# The example app's own: its manifest lets adb's shell call it.
DEMO_ONLY = frozenset({"ScheduleReceiver.java"})


@dataclass(frozen=True)
class Aar:
    """A built AAR. binary_sha256: of the phone binary inside, not the emulator's."""

    path: str
    bytes: int
    sha256: str
    binary_sha256: str


def build_aar(out: Path, tools: Tools, binary: Path | None = None) -> Aar:
    """Build the AAR at `out` with `binary` (None: the phone binary of this version).

    The emulator's binary is built here, by ziglang. The same tools, sources and binary give the same bytes.

    Raises BuildError, MissingExtraError without ziglang, StorageError; a file already at `out` is unchanged then.
    """
    with tempfile.TemporaryDirectory(prefix="phonograd-aar-") as folder:
        work = Path(folder)
        binary = binary or phone_binary(work)
        facts = check_phone_binary(binary)
        emulator = build_emulator_binary().path
        classes, jar, resources, built = work / "classes", work / "classes.jar", work / "R.txt", work / "built.aar"
        compile_java(classes, tools, without=DEMO_ONLY)
        write_archive(jar, {LICENSE_NAME: license_file(work)} | tree(classes, "*.class"))
        resources.touch()  # a list of no resources, which the format requires
        files = {"AndroidManifest.xml": MANIFEST, "classes.jar": jar, "R.txt": resources, "proguard.txt": RULES}
        files |= {BINARY: binary, EMULATOR_BINARY: emulator}
        write_archive(built, files | {name: keyboard_library(abi) for abi, name in LIBRARIES.items()})
        copy_archive(built, out)
    return Aar(str(out), out.stat().st_size, sha256_of_file(out), facts.sha256)


def size_table(aar: Path) -> str:
    """The files of an AAR with their sizes in bytes, as they are and compressed, for a terminal."""
    with zipfile.ZipFile(aar) as archive:
        rows = [(file.filename, file.file_size, file.compress_size) for file in archive.infolist()]
    rows.append(("all", sum(row[1] for row in rows), aar.stat().st_size))
    width = max(len(row[0]) for row in rows)
    lines = [f"{name:{width}} {plain:11,} {compressed:11,}" for name, plain, compressed in rows]
    return "\n".join([f"{'file':{width}} {'bytes':>11} {'compressed':>11}", *lines])
