"""The AAR: its files, an app that is compiled against it alone, and an epoch with its classes and its program."""

import json
import re
import subprocess
import zipfile
from pathlib import Path

import pytest

from phonograd.android_harness.app import Aar, Tools, build_aar
from phonograd.android_harness.app.aar import BINARY, LIBRARIES
from phonograd.android_harness.app.contents import JAVA
from phonograd.android_harness.app.toolchain import run_tool
from phonograd.device_runtime.native_build import build_android_library, build_phone_binary, check_phone_binary
from tests.android_harness.app.conftest import STEPS, Script
from tests.android_harness.app.jvm import Jvm
from tests.support.phone_command import Place

pytestmark = pytest.mark.apk

# As docs/android.md has it.
APP = """
package com.example.keyboard;

import org.phonograd.TrainingCommand;
import org.phonograd.TrainingJob;
import org.phonograd.TrainingListener;
import org.phonograd.Workspace;

public final class KeyboardTraining extends TrainingJob {
    @Override
    protected TrainingCommand command() {
        TrainingCommand command = super.command();
        return command == null ? null : command.inRound(3, "phone-17").with("--codec", "rot-q2");
    }

    @Override
    protected void onReport(TrainingListener.Report report) {
        new Workspace(this).user.delete();
    }
}
"""


@pytest.fixture(scope="module")
def aar(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Aar:
    return build_aar(tmp_path_factory.mktemp("aar") / "phonograd.aar", tools)


@pytest.fixture(scope="module")
def unpacked(aar: Aar, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(aar.path) as archive:
        archive.extractall(folder)
    return folder


def test_its_files(aar: Aar, unpacked: Path) -> None:
    with zipfile.ZipFile(aar.path) as archive:
        assert archive.namelist() == ["AndroidManifest.xml", "classes.jar", "R.txt", BINARY, *LIBRARIES.values()]
    phone = build_phone_binary().path
    assert (unpacked / BINARY).read_bytes() == phone.read_bytes()
    assert check_phone_binary(unpacked / BINARY).sha256 == aar.binary_sha256
    for abi, library in LIBRARIES.items():
        assert (unpacked / library).read_bytes() == build_android_library[abi]().path.read_bytes()
    assert (unpacked / "R.txt").read_bytes() == b""
    with zipfile.ZipFile(unpacked / "classes.jar") as jar:
        found = {name.partition("$")[0].removesuffix(".class") for name in jar.namelist()}
    written = {str(path.relative_to(JAVA).with_suffix("")) for path in JAVA.rglob("*.java")}
    assert written - found == {"org/phonograd/ScheduleReceiver"}
    assert found <= written


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


def test_an_app_compiles_against_it_alone(unpacked: Path, tools: Tools, tmp_path: Path) -> None:
    source = tmp_path / "KeyboardTraining.java"
    source.write_text(APP)
    classes, dex = tmp_path / "classes", tmp_path / "classes.dex"
    classes.mkdir()
    path = f"{unpacked / 'classes.jar'}:{tools.android_jar}"
    run_tool(tools.javac, "--release", "8", "-Xlint:all,-options", "-Werror", "-cp", path, "-d", classes, source)
    run_tool(tools.dexer, "--dex", "--min-sdk-version=26", f"--output={dex}", classes, unpacked / "classes.jar")
    dump = subprocess.run(["dexdump", "-d", dex], check=True, capture_output=True, text=True).stdout
    found = set(re.findall(r"Class descriptor  : 'L(.*?);'", dump))
    assert {"com/example/keyboard/KeyboardTraining", "org/phonograd/TrainingJob", "org/phonograd/Workspace"} <= found
    assert "invoke-custom" not in dump


def test_its_classes_train_with_its_program(
    unpacked: Path, jvm: Jvm, place: Place, script: Script, tmp_path: Path
) -> None:
    (unpacked / BINARY).chmod(0o755)
    emulated = script(f'exec qemu-aarch64 {unpacked / BINARY} "$@"')
    ours = Jvm(Path(f"{unpacked / 'classes.jar'}:{jvm.classes}"), jvm.fakes)
    files = (place.artifacts.folder, place.user, tmp_path / "update", tmp_path / "state")
    heard = ours.drive("never", emulated, *files)
    assert heard.only("report")[0] == str(STEPS)
    assert heard.only("ended")[0] == "FINISHED"
    assert (tmp_path / "update").stat().st_size > 1000


def test_equal_inputs_give_equal_bytes(aar: Aar, tools: Tools, tmp_path: Path) -> None:
    again = build_aar(tmp_path / "again.aar", tools, build_phone_binary().path)
    assert (again.sha256, again.bytes) == (aar.sha256, aar.bytes)


def test_the_command(aar: Aar, tmp_path: Path) -> None:
    line = ["python", "-m", "phonograd.android_harness.app", "--aar", tmp_path / "x.aar", "--out", tmp_path / "x.apk"]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["sha256"] == aar.sha256
    assert not (tmp_path / "x.apk").exists()
