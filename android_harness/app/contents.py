"""Contents of the APK and the AAR: Java classes, program and library, in archives of reproducible bytes."""

import contextlib
import importlib.metadata
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path

from phonograd.android_harness.app.toolchain import Tools, run_tool
from phonograd.device_runtime.base.errors import BuildError
from phonograd.device_runtime.base.files import atomic_file
from phonograd.device_runtime.native_build import build_android_library, deliver_phone_binary

JAVA = Path(__file__).parents[2] / "device_runtime" / "java"
# What the classes are compiled against and the AAR does not have: nobody needs an annotation's class at run time.
ANNOTATIONS = JAVA.with_name("java_annotations")
# Android's installer extracts only files of this form; classes in JAVA start it by this name.
BINARY_NAME = "arm64-v8a/libphonograd_phone.so"
EMULATOR_BINARY_NAME = "x86_64/libphonograd_phone.so"
# Where Gradle leaves it out of an APK, so that two libraries' do not clash.
LICENSE_NAME = "META-INF/LICENSE"
# Keyboard loads it. Names of folders are Android's of CPUs.
LIBRARY_NAME = "libphonograd.so"
# The earliest time that a zip file can hold, so that equal inputs give equal archives.
EARLIEST_TIME = (1980, 1, 1, 0, 0, 0)


def compile_java(classes: Path, tools: Tools, *sources: Path, without: frozenset[str] = frozenset()) -> None:
    """Compile all Java files under `sources` (none: JAVA), except those named in `without`, into the folder `classes`.

    Warnings are errors. Raises BuildError.
    """
    classes.mkdir(parents=True, exist_ok=True)
    # --release 8: dx reads no newer class files; java.* is checked against Java 8, android.* against the jar.
    strict = ("-Xlint:all,-options", "-Werror", "-encoding", "UTF-8", "--release", "8")
    annotations = ("-sourcepath", ANNOTATIONS, "-implicit:none")
    files = java_files(*sources, without=without)
    run_tool(tools.javac, *strict, "-classpath", tools.android_jar, *annotations, "-d", classes, *files)


def java_files(*sources: Path, without: frozenset[str] = frozenset()) -> list[Path]:
    """List the Java files under `sources` (none: JAVA), except those named in `without`, in order."""
    found = (path for source in sources or (JAVA,) for path in source.rglob("*.java"))
    return sorted(path for path in found if path.name not in without)


def license_file(work: Path) -> Path:
    """The project's licence: the checkout's, or a copy of the installed package's in `work`. Raises BuildError."""
    checkout, copy = Path(__file__).resolve().parents[2] / "LICENSE", work / "LICENSE"
    if checkout.is_file():
        return checkout
    text = None
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        text = importlib.metadata.distribution("phonograd").read_text("licenses/LICENSE")
    if text is None:
        raise BuildError("phonograd: no LICENSE in the installed package; install it again")
    copy.write_text(text, "utf-8")
    return copy


def phone_binary(work: Path) -> Path:
    """The phone binary of this version, in the folder `work`. Raises what `deliver_phone_binary` raises."""
    binary = work / "phonograd-phone"
    deliver_phone_binary(binary)
    return binary


def tree(folder: Path, pattern: str = "*") -> dict[str, Path]:
    """The files under a folder by their names in it, in order."""
    found = sorted(path for path in folder.rglob(pattern) if path.is_file())
    return {path.relative_to(folder).as_posix(): path for path in found}


def keyboard_library(abi: str = "arm64-v8a") -> Path:
    """The library of this version for a CPU. Raises BuildError, MissingExtraError without ziglang."""
    return build_android_library[abi]().path


def write_archive(out: Path, files: Mapping[str, Path]) -> None:
    """Write a zip file with these files, by their names in it. Equal files give equal bytes.

    Resources are stored as they are, as Android 11 and later need them.
    """
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, path in files.items():
            entry = zipfile.ZipInfo(name, EARLIEST_TIME)
            entry.compress_type = zipfile.ZIP_STORED if name == "resources.arsc" else zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes(), compresslevel=9)


def copy_archive(built: Path, out: Path) -> None:
    """Copy a finished archive to its place, atomically. Raises StorageError."""
    with built.open("rb") as original, atomic_file(out) as file:
        shutil.copyfileobj(original, file)
