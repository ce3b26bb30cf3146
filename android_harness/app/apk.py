"""Build an APK from the Java classes and the phone binary, signed with a debug key, to install over adb."""

import shutil
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from phonograd.android_harness.app.toolchain import Tools, run_tool
from phonograd.device_runtime.base.files import atomic_file, sha256_of_file
from phonograd.device_runtime.native_build import check_phone_binary, deliver_phone_binary

HERE = Path(__file__).parent
MANIFEST = HERE / "AndroidManifest.xml"
JAVA = HERE.parents[1] / "device_runtime" / "java"
BINARY = "lib/arm64-v8a/libphonograd_phone.so"
# As in AndroidManifest.xml. Interfaces with default methods need 24, the methods of java.lang.Process in use need 26.
MIN_SDK = 26
# Alias and password of every debug key of Android's own tools; they protect nothing.
KEY_ALIAS, KEY_PASSWORD = "androiddebugkey", "android"
# The earliest time that a zip file can hold, so that equal inputs give equal APKs.
EARLIEST_TIME = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Apk:
    """A built APK. binary_sha256: of the phone binary inside; dexer: the program that made classes.dex."""

    path: str
    bytes: int
    sha256: str
    binary_sha256: str
    dexer: str


def build_apk(out: Path, tools: Tools, binary: Path | None = None, keystore: Path | None = None) -> Apk:
    """Build the APK at `out` with `binary` (None: the phone binary of this version).

    keystore: a key store with Android's debug alias and password, made if it is missing; None: a new key each time. The
    same key, tools and binary give the same bytes. The APK is debuggable, so that adb's `run-as` can access its files.

    Raises BuildError, StorageError; a file already at `out` is unchanged then.
    """
    with tempfile.TemporaryDirectory(prefix="phonograd-apk-") as folder:
        work = Path(folder)
        binary = binary or _build_binary(work)
        facts = check_phone_binary(binary)
        store = keystore or work / "debug.p12"
        if not store.exists():
            make_debug_key(store, tools)
        unaligned, aligned, signed = work / "unaligned.apk", work / "aligned.apk", work / "signed.apk"
        _zip(
            unaligned, {"AndroidManifest.xml": _manifest(work, tools), "classes.dex": _dex(work, tools), BINARY: binary}
        )
        run_tool(tools.zipalign, "-p", "4", unaligned, aligned)
        _sign(aligned, signed, store, tools)
        _place(signed, out)
    return Apk(str(out), out.stat().st_size, sha256_of_file(out), facts.sha256, tools.dexer.name)


def make_debug_key(store: Path, tools: Tools) -> None:
    """Write a key store with a new debug key. Raises BuildError."""
    secret = ("-storetype", "PKCS12", "-storepass", KEY_PASSWORD, "-keypass", KEY_PASSWORD)
    key = ("-keyalg", "RSA", "-keysize", "2048", "-validity", "10000", "-dname", "CN=phonograd debug")
    run_tool(tools.keytool, "-genkeypair", "-keystore", store, "-alias", KEY_ALIAS, *secret, *key)


def compile_java(classes: Path, tools: Tools, sources: Path = JAVA) -> None:
    """Compile all Java files under `sources` into the folder `classes`; warnings are errors. Raises BuildError."""
    classes.mkdir(parents=True, exist_ok=True)
    # --release 8: dx reads no newer class files; java.* is checked against Java 8, android.* against the jar.
    strict = ("-Xlint:all,-options", "-Werror", "-encoding", "UTF-8", "--release", "8")
    files = sorted(sources.rglob("*.java"))
    run_tool(tools.javac, *strict, "-classpath", tools.android_jar, "-d", classes, *files)


def _build_binary(work: Path) -> Path:
    binary = work / "phonograd-phone"
    deliver_phone_binary(binary)
    return binary


def _dex(work: Path, tools: Tools) -> Path:
    classes, dex = work / "classes", work / "dex"
    compile_java(classes, tools)
    dex.mkdir()
    if tools.dexer.name.startswith("d8"):
        files = sorted(classes.rglob("*.class"))
        lib = ("--lib", tools.android_jar)
        run_tool(tools.dexer, "--release", "--min-api", str(MIN_SDK), *lib, "--output", dex, *files)
    else:
        run_tool(tools.dexer, "--dex", f"--min-sdk-version={MIN_SDK}", f"--output={dex / 'classes.dex'}", classes)
    return dex / "classes.dex"


def _manifest(work: Path, tools: Tools) -> Path:
    """The manifest in Android's binary form."""
    packed = work / "manifest.apk"
    run_tool(tools.aapt, "package", "--debug-mode", "-M", MANIFEST, "-I", tools.android_jar, "-F", packed)
    with zipfile.ZipFile(packed) as archive:
        return Path(archive.extract("AndroidManifest.xml", work))


def _zip(out: Path, files: dict[str, Path]) -> None:
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, path in files.items():
            entry = zipfile.ZipInfo(name, EARLIEST_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes(), compresslevel=9)


def _sign(aligned: Path, signed: Path, store: Path, tools: Tools) -> None:
    secret = ("--ks-key-alias", KEY_ALIAS, "--ks-pass", f"pass:{KEY_PASSWORD}", "--key-pass", f"pass:{KEY_PASSWORD}")
    # v1 is for Android before 7; v4 is a separate file for incremental installation.
    schemes = ("--v1-signing-enabled", "false", "--v4-signing-enabled", "false")
    run_tool(tools.apksigner, "sign", "--ks", store, *secret, *schemes, "--out", signed, aligned)


def _place(built: Path, out: Path) -> None:
    with built.open("rb") as original, atomic_file(out) as file:
        shutil.copyfileobj(original, file)
