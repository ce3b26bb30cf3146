"""Build an APK with the example keyboard and the phone binary, signed with a debug key, to install over adb."""

import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from phonograd.android_harness.app.aar import Aar
from phonograd.android_harness.app.contents import (
    BINARY_NAME,
    JAVA,
    LIBRARY_NAME,
    compile_java,
    copy_archive,
    keyboard_library,
    phone_binary,
    write_archive,
)
from phonograd.android_harness.app.toolchain import Tools, run_tool
from phonograd.device_runtime.base.errors import BuildError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.native_build.checks import check_phone_binary

MANIFEST = Path(__file__).with_name("AndroidManifest.xml")
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "keyboard"
BINARY, LIBRARY = f"lib/{BINARY_NAME}", f"lib/arm64-v8a/{LIBRARY_NAME}"
# As in AndroidManifest.xml. Interfaces with default methods need 24, the methods of java.lang.Process in use need 26.
MIN_SDK = 26
# Alias and password of every debug key of Android's own tools; they protect nothing.
KEY_ALIAS, KEY_PASSWORD = "androiddebugkey", "android"


@dataclass(frozen=True)
class Apk(Aar):
    """A built APK. dexer: the program that made classes.dex."""

    dexer: str


def build_apk(out: Path, tools: Tools, binary: Path | None = None, keystore: Path | None = None) -> Apk:
    """Build the APK at `out` with `binary` (None: the phone binary of this version).

    keystore: a key store with Android's debug alias and password, made if it is missing; None: a new key each time. The
    same key, tools and binary give the same bytes. The APK is debuggable, so that adb's `run-as` can access its files.

    Raises BuildError, StorageError; a file already at `out` is unchanged then.
    """
    if not EXAMPLE.is_dir():
        raise BuildError(f"{EXAMPLE}: no such folder; build the APK in a source checkout")
    with tempfile.TemporaryDirectory(prefix="phonograd-apk-") as folder:
        work = Path(folder)
        binary = binary or phone_binary(work)
        facts = check_phone_binary(binary)
        store = keystore or work / "debug.p12"
        if not store.exists():
            make_debug_key(store, tools)
        unaligned, aligned, signed = work / "unaligned.apk", work / "aligned.apk", work / "signed.apk"
        files = _resources(work, tools) | {
            "classes.dex": _dex(work, tools),
            BINARY: binary,
            LIBRARY: keyboard_library(),
        }
        write_archive(unaligned, files)
        run_tool(tools.zipalign, "-p", "4", unaligned, aligned)
        _sign(aligned, signed, store, tools)
        copy_archive(signed, out)
    return Apk(str(out), out.stat().st_size, sha256_of_file(out), facts.sha256, tools.dexer.name)


def make_debug_key(store: Path, tools: Tools) -> None:
    """Write a key store with a new debug key. Raises BuildError."""
    secret = ("-storetype", "PKCS12", "-storepass", KEY_PASSWORD, "-keypass", KEY_PASSWORD)
    key = ("-keyalg", "RSA", "-keysize", "2048", "-validity", "10000", "-dname", "CN=phonograd debug")
    run_tool(tools.keytool, "-genkeypair", "-keystore", store, "-alias", KEY_ALIAS, *secret, *key)


def _dex(work: Path, tools: Tools) -> Path:
    classes, dex = work / "classes", work / "dex"
    compile_java(classes, tools, JAVA, EXAMPLE / "java")
    dex.mkdir()
    if tools.dexer.name.startswith("d8"):
        files = sorted(classes.rglob("*.class"))
        lib = ("--lib", tools.android_jar)
        run_tool(tools.dexer, "--release", "--min-api", str(MIN_SDK), *lib, "--output", dex, *files)
    else:
        run_tool(tools.dexer, "--dex", f"--min-sdk-version={MIN_SDK}", f"--output={dex / 'classes.dex'}", classes)
    return dex / "classes.dex"


def _resources(work: Path, tools: Tools) -> dict[str, Path]:
    packed, folder = work / "resources.apk", work / "resources"
    inputs = ("-M", MANIFEST, "-S", EXAMPLE / "res", "-I", tools.android_jar)
    run_tool(tools.aapt, "package", "--debug-mode", *inputs, "-F", packed)
    with zipfile.ZipFile(packed) as archive:
        return {name: Path(archive.extract(name, folder)) for name in archive.namelist()}


def _sign(aligned: Path, signed: Path, store: Path, tools: Tools) -> None:
    secret = ("--ks-key-alias", KEY_ALIAS, "--ks-pass", f"pass:{KEY_PASSWORD}", "--key-pass", f"pass:{KEY_PASSWORD}")
    # v1 is for Android before 7; v4 is a separate file for incremental installation.
    schemes = ("--v1-signing-enabled", "false", "--v4-signing-enabled", "false")
    run_tool(tools.apksigner, "sign", "--ks", store, *secret, *schemes, "--out", signed, aligned)
