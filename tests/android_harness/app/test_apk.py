"""The APK, as Android's own tools see it."""

import re
import subprocess
import zipfile
from pathlib import Path

import pytest

from phonograd.android_harness.app import Apk, Tools, build_apk, find_tools
from phonograd.android_harness.app.apk import BINARY, EXAMPLE, LIBRARY, make_debug_key
from phonograd.android_harness.app.contents import JAVA, compile_java
from phonograd.android_harness.app.toolchain import run_tool
from phonograd.device_runtime.base.errors import BuildError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.native_build import build_phone_binary
from phonograd.device_runtime.native_build.checks import check_android_library, check_phone_binary

pytestmark = pytest.mark.apk
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def keystore(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("key") / "debug.p12"
    make_debug_key(store, tools)
    return store


@pytest.fixture(scope="module")
def apk(tools: Tools, keystore: Path, tmp_path_factory: pytest.TempPathFactory) -> Apk:
    return build_apk(tmp_path_factory.mktemp("apk") / "demo.apk", tools, keystore=keystore)


def test_what_the_package_says(apk: Apk, tools: Tools) -> None:
    badging = run_tool(tools.aapt, "dump", "badging", apk.path)
    for line in (
        "package: name='org.phonograd.demo' versionCode='1'",
        "sdkVersion:'26'",
        "targetSdkVersion:'35'",
        "native-code: 'arm64-v8a'",
    ):
        assert line in badging
    permissions = re.findall("uses-permission: name='(.*?)'", badging)
    assert permissions == [
        f"android.permission.{name}" for name in ("RECEIVE_BOOT_COMPLETED", "INTERNET", "ACCESS_NETWORK_STATE")
    ]


def test_the_manifest(apk: Apk, tools: Tools) -> None:
    tree = run_tool(tools.aapt, "dump", "xmltree", apk.path, "AndroidManifest.xml")
    said = dict(re.findall(r'android:(\w+)\(0x\w+\)=(".*?"|\(type 0x12\)0x\w+)', tree))
    yes, no = "(type 0x12)0xffffffff", "(type 0x12)0x0"
    # Without the first the binary is never a file that can be executed.
    assert (said["extractNativeLibs"], said["allowBackup"]) == (yes, no)
    service = tree[tree.index("E: service") : tree.index("E: receiver")]
    assert "org.phonograd.TrainingJob" in service
    assert "android.permission.BIND_JOB_SERVICE" in service
    assert f"exported(0x01010010)={no}" in service


def test_the_rounds(apk: Apk, tools: Tools) -> None:
    """Only Android may start the jobs; the one that trains is not in the keyboard's process."""
    tree = run_tool(tools.aapt, "dump", "xmltree", apk.path, "AndroidManifest.xml")
    for name, process in (("NightlyRound", True), ("NetworkRound", False)):
        service = tree[tree.index(f'"org.phonograd.keyboard.{name}"') :].split("E: ")[0]
        assert "android.permission.BIND_JOB_SERVICE" in service
        assert "exported(0x01010010)=(type 0x12)0x0" in service
        assert ('":training"' in service) == process


def test_the_keyboard(apk: Apk, tools: Tools) -> None:
    """What Android looks for in a keyboard: who may bind it, and its resource, which must not be compressed."""
    assert "provides-component:'ime'" in run_tool(tools.aapt, "dump", "badging", apk.path)
    tree = run_tool(tools.aapt, "dump", "xmltree", apk.path, "AndroidManifest.xml")
    service = tree[tree.index('"org.phonograd.keyboard.KeyboardService"') :]
    assert service.index("android.permission.BIND_INPUT_METHOD") < service.index("android.view.InputMethod")
    (resource,) = re.findall(r"android:resource\(0x\w+\)=@(0x\w+)", tree)
    assert f"{resource} org.phonograd.demo:xml/method" in run_tool(tools.aapt, "dump", "resources", apk.path)
    with zipfile.ZipFile(apk.path) as archive:
        assert archive.getinfo("resources.arsc").compress_type == zipfile.ZIP_STORED
        assert "res/xml/method.xml" in archive.namelist()


def test_the_signature_and_alignment(apk: Apk, tools: Tools) -> None:
    said = run_tool(tools.apksigner, "verify", "--verbose", "--min-sdk-version", "26", apk.path)
    assert "Verified using v2 scheme (APK Signature Scheme v2): true" in said
    assert "Verified using v3 scheme (APK Signature Scheme v3): true" in said
    run_tool(tools.zipalign, "-c", "-p", "4", apk.path)


def test_the_binary_is_the_phones_own(apk: Apk, tmp_path: Path) -> None:
    phone = build_phone_binary().path
    with zipfile.ZipFile(apk.path) as archive:
        assert [name for name in archive.namelist() if name.startswith("lib/")] == [BINARY, LIBRARY]
        library = check_android_library(Path(archive.extract(LIBRARY, tmp_path)))
        inside = Path(archive.extract(BINARY, tmp_path))
    assert inside.read_bytes() == phone.read_bytes()
    # Static, aarch64, and segments for pages of 16 KiB: what counts for a file that Android extracts.
    assert check_phone_binary(inside).page_bytes >= 16384
    assert "Java_org_phonograd_Keyboard_suggest" in library.exports
    assert apk.binary_sha256 == sha256_of_file(phone)


def test_the_classes(apk: Apk, tmp_path: Path) -> None:
    with zipfile.ZipFile(apk.path) as archive:
        dex = archive.extract("classes.dex", tmp_path)
    dump = subprocess.run(["dexdump", "-d", dex], check=True, capture_output=True, text=True).stdout
    found = set(re.findall(r"Class descriptor  : 'L(.*?);'", dump))
    sources = (JAVA, EXAMPLE / "java")
    written = {str(path.relative_to(folder).with_suffix("")) for folder in sources for path in folder.rglob("*.java")}
    assert written <= found
    assert {name.split("$")[0] for name in found} == written
    # The bootstrap methods of Java's lambdas are none of Android's.
    assert "invoke-custom" not in dump
    assert "Workspace;.<init>:(Landroid/content/Context;)V" in dump


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("class Raw { java.util.List list; }", "rawtypes"),  # a warning is an error
        ("class Newer { long pid(Process process) { return process.pid(); } }", "cannot find symbol"),
    ],
)
def test_java_that_is_refused(tools: Tools, tmp_path: Path, source: str, said: str) -> None:
    (tmp_path / f"{source.split()[1]}.java").write_text(source)
    with pytest.raises(BuildError, match=said):
        compile_java(tmp_path / "classes", tools, tmp_path)


def test_a_binary_for_this_machine_is_refused(tools: Tools, tmp_path: Path) -> None:
    out = tmp_path / "demo.apk"
    out.write_bytes(b"what stood there")
    with pytest.raises(BuildError, match="aarch64"):
        build_apk(out, tools, tools.zipalign)
    assert out.read_bytes() == b"what stood there"


def test_the_command(apk: Apk, keystore: Path, tmp_path: Path) -> None:
    line = ["python", "-m", "phonograd.android_harness.app", "--keystore", str(keystore), "--out"]
    done = subprocess.run([*line, tmp_path / "demo.apk"], capture_output=True, text=True, check=True)
    assert apk.sha256 in done.stdout
    assert f"adb install {tmp_path / 'demo.apk'}" in done.stderr
    bad = subprocess.run([*line, tmp_path / "x", "--d8", tmp_path / "d8"], capture_output=True, text=True, check=False)
    assert (bad.returncode, bad.stderr.count("\n")) == (15, 1)
    assert "d8: no such file" in bad.stderr


def test_the_newest_tools_are_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for version in ("9.0.0", "35.0.1", "35.0.0"):
        folder = tmp_path / "build-tools" / version
        folder.mkdir(parents=True)
        for name in ("aapt", "zipalign", "apksigner", "d8", "dx"):
            (folder / name).touch()
    for platform in ("android-9", "android-36"):
        (tmp_path / "platforms" / platform).mkdir(parents=True)
        (tmp_path / "platforms" / platform / "android.jar").touch()
    monkeypatch.setenv("ANDROID_HOME", str(tmp_path))
    tools = find_tools()
    assert tools.dexer == tmp_path / "build-tools/35.0.1/d8"
    assert tools.android_jar == tmp_path / "platforms/android-36/android.jar"
    assert find_tools(dexer=tools.zipalign).dexer == tools.zipalign


def test_all_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BuildError, match="missing: aapt, zipalign, .*ANDROID_HOME, .*: aapt zipalign apksigner dalvik"):
        find_tools(sdk=tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        BuildError, match="missing: javac, javadoc, keytool, of a JDK .*: default-jdk-headless default-jre"
    ):
        find_tools()


def test_make_says_what_is_missing_before_it_installs(tmp_path: Path) -> None:
    line = ["make", "aar", f"ANDROID={tmp_path / 'venv'}", f"ANDROID_HOME={tmp_path}"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    assert re.fullmatch(r"error: missing: aapt, .*\nmake(\[1\])?: .* Error 1\n", done.stderr)
    assert not (tmp_path / "venv").exists()


def test_the_arguments_of_d8(tools: Tools, keystore: Path, tmp_path: Path) -> None:
    """A d8 that does what dx does: its arguments are those of the real one's manual."""
    d8 = tmp_path / "d8"
    d8.write_text(
        "#!/bin/sh\n"
        '[ "$1 $2 $3 $4 $6" = "--release --min-api 26 --lib --output" ] || { echo "unknown: $*"; exit 1; }\n'
        f'[ "$5" = "{tools.android_jar}" ] && [ "${{8##*.}}" = class ] || {{ echo "bad: $*"; exit 1; }}\n'
        f'exec {tools.dexer} --dex --min-sdk-version=26 --output="$7/classes.dex" "${{8%/org/*}}"\n'
    )
    d8.chmod(0o755)
    apk = build_apk(tmp_path / "demo.apk", find_tools(dexer=d8), keystore=keystore)
    assert apk.dexer == "d8"
