"""The AAR's rules for code shrinkers, as ProGuard applies them: R8 reads the same ones."""

import subprocess
from pathlib import Path

import pytest

from phonograd.android_harness.app import Tools
from phonograd.android_harness.app.toolchain import run_tool

pytestmark = pytest.mark.apk

SOURCES = {
    "org/phonograd/Native.java": "package org.phonograd; public final class Native {"
    " public static native Handle open(String path); public static final class Handle {} }",
    "com/app/Nightly.java": "package com.app; public final class Nightly extends org.phonograd.TrainingJob {}",
    "com/app/Main.java": "package com.app; public final class Main {"
    ' public static void main(String[] words) { org.phonograd.Native.open("x"); } }',
}


def test_names_that_others_look_up_are_kept_and_no_more(unpacked: Path, tools: Tools, tmp_path: Path) -> None:
    """Nothing in the app names its job: Android does, by the manifest."""
    for name, text in SOURCES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    classes, names = tmp_path / "classes", tmp_path / "names.txt"
    jar = unpacked / "classes.jar"
    sources = [tmp_path / name for name in SOURCES]
    run_tool(
        tools.javac, "--release", "8", "-Xlint:-options", "-cp", f"{jar}:{tools.android_jar}", "-d", classes, *sources
    )
    inputs = ["-injars", classes, "-injars", f"{jar}(!META-INF/**)", "-libraryjars", tools.android_jar]
    own = "-keep class com.app.Main { public static void main(java.lang.String[]); }"
    rules = [own, "-include", unpacked / "proguard.txt", "-dontnote", "-dontwarn", "-printmapping", names]
    subprocess.run(["proguard", *inputs, "-outjars", tmp_path / "out.jar", *rules], check=True, capture_output=True)
    renamed = dict(line.rstrip(":").split(" -> ") for line in names.read_text().splitlines() if line[0] != " ")
    kept = {name for name, new in renamed.items() if name == new}
    assert {"com.app.Nightly", "org.phonograd.Native", "org.phonograd.Native$Handle"} <= kept
    assert " org.phonograd.Native$Handle open(java.lang.String) -> open\n" in names.read_text()
    assert {"org.phonograd.TrainingJob", "org.phonograd.Workspace"} <= renamed.keys() - kept
