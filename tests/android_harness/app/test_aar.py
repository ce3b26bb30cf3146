"""The AAR: its files, an app that is compiled against it alone, and an epoch with its classes and its program."""

import importlib.metadata
import json
import re
import subprocess
import zipfile
from pathlib import Path

import pytest

from phonograd.android_harness.app import Aar, Tools, contents
from phonograd.android_harness.app.aar import BINARY, EMULATOR_BINARY, LIBRARIES
from phonograd.android_harness.app.contents import JAVA, LICENSE_NAME
from phonograd.android_harness.app.toolchain import run_tool
from phonograd.device_runtime.base.errors import BuildError
from phonograd.device_runtime.native_build import build_android_library, build_phone_binary
from phonograd.device_runtime.native_build.checks import check_emulator_binary, check_phone_binary
from tests.android_harness.app.conftest import Script
from tests.android_harness.app.jvm import Jvm
from tests.support.emulated import WITHOUT_SME
from tests.support.phone_command import Place, text_of

pytestmark = pytest.mark.apk

LICENSE = Path(__file__).parents[3] / "LICENSE"

PAGE = Path(__file__).parents[3] / "docs" / "android.md"
# What the page leaves to the app.
APP = """
package com.example.keyboard;
import android.content.Context;
import java.io.*;
import org.phonograd.*;

class Enrolling {{
    void enroll(Context context, String phone, String token) throws IOException {{
        {enrolling}
    }}
}}

class Typing extends android.app.Service {{
    public android.os.IBinder onBind(android.content.Intent intent) {{ return null; }}
    void type(Workspace workspace) throws IOException {{
        {typing}
    }}
}}

{jobs}
"""


def test_its_files(aar: Aar, unpacked: Path) -> None:
    with zipfile.ZipFile(aar.path) as archive:
        fixed = ["AndroidManifest.xml", "classes.jar", "R.txt", "proguard.txt"]
        assert archive.namelist() == [*fixed, BINARY, EMULATOR_BINARY, *LIBRARIES.values()]
    phone = build_phone_binary().path
    assert (unpacked / BINARY).read_bytes() == phone.read_bytes()
    assert check_phone_binary(unpacked / BINARY).sha256 == aar.binary_sha256
    assert check_emulator_binary(unpacked / EMULATOR_BINARY).page_bytes == 16384
    for abi, library in LIBRARIES.items():
        assert (unpacked / library).read_bytes() == build_android_library[abi]().path.read_bytes()
    assert (unpacked / "R.txt").read_bytes() == b""
    with zipfile.ZipFile(unpacked / "classes.jar") as jar:
        assert jar.read(LICENSE_NAME) == LICENSE.read_bytes()
        found = {name.partition("$")[0].removesuffix(".class") for name in jar.namelist()} - {LICENSE_NAME}
    written = {str(path.relative_to(JAVA).with_suffix("")) for path in JAVA.rglob("*.java")}
    assert written - found == {"org/phonograd/ScheduleReceiver"}
    assert found <= written


def test_the_page_has_its_sizes(aar: Aar) -> None:
    files = ("classes.jar", BINARY, LIBRARIES["arm64-v8a"], EMULATOR_BINARY, LIBRARIES["x86_64"])
    rows = re.findall(r"^\| .*? \| ([\d, +]+) \| ([\d, +]+) \|$", PAGE.read_text("utf-8"), re.M)
    told = [[int(size.replace(",", "")) for row in rows for size in row[column].split(" + ")] for column in (0, 1)]
    with zipfile.ZipFile(aar.path) as archive:
        found = [archive.getinfo(file) for file in files]
    assert told[0] == pytest.approx([one.file_size / 1e3 for one in found], rel=0.03)
    assert told[1] == pytest.approx([one.compress_size / 1e3 for one in found], rel=0.03)


def test_the_licence_outside_a_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(contents, "__file__", str(tmp_path / "android_harness/app/contents.py"))
    assert contents.license_file(tmp_path).read_bytes() == LICENSE.read_bytes()
    (tmp_path / "LICENSE").unlink()
    monkeypatch.setattr(importlib.metadata.Distribution, "discover", lambda **_: iter(()))
    with pytest.raises(BuildError, match="no LICENSE in the installed package"):
        contents.license_file(tmp_path)


def test_the_manifest_is_one_that_merges(unpacked: Path, tools: Tools, tmp_path: Path) -> None:
    """An app's Gradle build merges it; aapt reads it as it stands."""
    manifest = ("-M", unpacked / "AndroidManifest.xml", "-I", tools.android_jar)
    run_tool(tools.aapt, "package", *manifest, "-F", tmp_path / "read.apk")
    badging = run_tool(tools.aapt, "dump", "badging", tmp_path / "read.apk")
    assert "package: name='org.phonograd' " in badging
    assert "sdkVersion:'26'" in badging
    assert re.findall("uses-permission: name='(.*?)'", badging) == ["android.permission.RECEIVE_BOOT_COMPLETED"]
    tree = run_tool(tools.aapt, "dump", "xmltree", tmp_path / "read.apk", "AndroidManifest.xml")
    assert "E: service" not in tree
    assert "E: receiver" not in tree


def test_the_pages_code_compiles_against_it_alone(unpacked: Path, tools: Tools, tmp_path: Path) -> None:
    jobs, enrolling, typing = re.findall(r"^```java\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    source, classes, dex = tmp_path / "App.java", tmp_path / "classes", tmp_path / "classes.dex"
    jobs = jobs.replace("public final class", "final class")
    source.write_text(APP.format(jobs=jobs, enrolling=enrolling, typing=typing))
    classes.mkdir()
    path = f"{unpacked / 'classes.jar'}:{tools.android_jar}"
    run_tool(tools.javac, "--release", "8", "-Xlint:-options", "-cp", path, "-d", classes, source)
    assert (classes / "com/example/keyboard/Rounds.class").is_file()
    run_tool(tools.dexer, "--dex", "--min-sdk-version=26", f"--output={dex}", unpacked / "classes.jar")
    dump = subprocess.run(["dexdump", "-d", dex], check=True, capture_output=True, text=True).stdout
    found = set(re.findall(r"Class descriptor  : 'L(.*?);'", dump))
    assert {"org/phonograd/TrainingJob", "org/phonograd/RoundJob", "org/phonograd/Keyboard"} <= found
    assert "invoke-custom" not in dump


def test_its_classes_train_with_its_program(
    unpacked: Path, jvm: Jvm, place: Place, script: Script, tmp_path: Path
) -> None:
    (unpacked / BINARY).chmod(0o755)
    emulated = script(f'exec qemu-aarch64 -cpu {WITHOUT_SME} {unpacked / BINARY} "$@"')
    ours = Jvm(Path(f"{unpacked / 'classes.jar'}:{jvm.classes}"), jvm.fakes)
    (tmp_path / "user").write_bytes(text_of(3, 16 * 15))  # few steps: it runs under qemu
    files = (place.artifacts.folder, tmp_path / "user", tmp_path / "update", tmp_path / "state")
    heard = ours.drive("never", emulated, *files)
    assert heard.only("report")[0] == "16"
    assert heard.only("ended")[0] == "FINISHED"
    assert (tmp_path / "update").stat().st_size > 1000


def test_the_command(aar: Aar, tmp_path: Path) -> None:
    line = ["python", "-m", "phonograd.android_harness.app", "--aar", tmp_path / "x.aar", "--out", tmp_path / "x.apk"]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["sha256"] == aar.sha256
    with zipfile.ZipFile(aar.path) as archive:
        told = {file.filename: (file.file_size, file.compress_size) for file in archive.infolist()}
    rows = [line.split() for line in done.stderr.replace(",", "").splitlines()[1:]]
    assert {name: (int(plain), int(packed)) for name, plain, packed in rows[1:-1]} == told
    assert rows[-1][0::2] == ["all", str(aar.bytes)]
    assert not (tmp_path / "x.apk").exists()
