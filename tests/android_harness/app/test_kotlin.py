"""Kotlin against the AAR's classes: the sample compiles, and null is refused where Java says so."""

import re
import subprocess
import zipfile
from pathlib import Path

import pytest

from phonograd.android_harness.app import Tools
from phonograd.android_harness.app.toolchain import run_tool

pytestmark = pytest.mark.apk

SAMPLE = Path(__file__).parents[3] / "examples" / "kotlin" / "KeyboardTraining.kt"
# Each line misuses null once.
MISUSE = """
import org.phonograd.*; import java.io.File
fun given(f: File) = Keyboard.open(null, f, null)
fun taken(e: Ending) = e.report.steps
fun returned(p: PhonogradProcess) = p.await(1, java.util.concurrent.TimeUnit.DAYS).code
class Overrides : TrainingJob() { override fun onReport(report: TrainingListener.Report?) {} }
"""


def kotlinc(source: Path, unpacked: Path, tools: Tools, out: Path) -> subprocess.CompletedProcess[str]:
    """Compile against the AAR and Android alone: no annotation's class is there."""
    path = f"{unpacked / 'classes.jar'}:{tools.android_jar}"
    line = ["kotlinc", "-no-reflect", "-Werror", "-cp", path, source, "-d", out]
    return subprocess.run(line, capture_output=True, text=True, check=False)


def test_the_sample_compiles(unpacked: Path, tools: Tools, tmp_path: Path) -> None:
    done = kotlinc(SAMPLE, unpacked, tools, tmp_path / "classes")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "classes/com/example/keyboard/KeyboardTraining.class").is_file()


def test_misuse_of_null_is_refused(unpacked: Path, tools: Tools, tmp_path: Path) -> None:
    source = tmp_path / "misuse.kt"
    source.write_text(MISUSE.strip())
    done = kotlinc(source, unpacked, tools, tmp_path / "classes")
    refused = re.findall(r"misuse\.kt:(\d+):\d+: error: (.*)", done.stderr)
    assert [int(line) for line, _ in refused] == [2, 3, 4, 5], done.stderr
    assert "null can not be a value of a non-null type" in refused[0][1]
    assert all("nullable receiver" in error for _, error in refused[1:3])
    assert "overrides nothing" in refused[3][1]


def test_every_reference_of_the_api_is_marked(unpacked: Path, tools: Tools) -> None:
    """Fields, parameters and returns that an app sees: @NonNull or @Nullable, in the class files."""
    jar = unpacked / "classes.jar"
    with zipfile.ZipFile(jar) as archive:
        names = [name.removesuffix(".class").replace("/", ".") for name in archive.namelist() if name.endswith("class")]
    text = run_tool(tools.javac.with_name("javap"), "-v", "-protected", "-cp", jar, *names)
    members = 0
    for described in re.split(r"^Classfile ", text, flags=re.MULTILINE)[1:]:
        if not re.search(r"^public .*(class|interface) ", described, re.MULTILINE):
            continue
        for member in described.partition("\n{\n")[2].partition("\n}\n")[0].split("\n\n"):
            # Java makes an enum's constants and its methods.
            if "ACC_ENUM" in member or re.search(r" values\(\);| valueOf\(", member) or "descriptor:" not in member:
                continue
            (descriptor,) = re.findall(r"descriptor: (\S+)", member)
            references = re.findall(r"\[*L[^;]+;|\[+[A-Z]", descriptor)
            marks = re.findall(r"^ +androidx\.annotation\.(?:NonNull|Nullable)$", member, re.MULTILINE)
            assert len(marks) == len(references), member.strip().splitlines()[0]
            members += 1
    assert members > 50
