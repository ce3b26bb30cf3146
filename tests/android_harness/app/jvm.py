"""The app's Java classes on a plain JVM: Debian's org.json for Android's, fakes for the few classes of Android."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from phonograd.android_harness.app.apk import EXAMPLE
from phonograd.android_harness.app.contents import JAVA, compile_java
from phonograd.android_harness.app.toolchain import Tools, run_tool
from tests.support.waiting import PATIENCE_SECONDS

HERE = Path(__file__).parent
JSON = Path("/usr/share/java/com.android.json.jar")  # Debian: libandroid-json-java
# Little, so that what is not bounded shows.
HEAP = "-Xmx32m"


@dataclass(frozen=True)
class Heard:
    """What Drive printed: the name and the words of each event, in order."""

    lines: tuple[tuple[str, ...], ...]
    err: str

    def all(self, name: str) -> list[tuple[str, ...]]:
        """The words of every event of that name."""
        return [line[1:] for line in self.lines if line[0] == name]

    def only(self, name: str) -> tuple[str, ...]:
        """The words of the one event of that name."""
        (words,) = self.all(name)
        return words


@dataclass(frozen=True)
class Jvm:
    """Compiled classes: the app's and the tests', and the fakes that stand before them."""

    classes: Path
    fakes: Path

    def java(self, main: str, *options: str) -> list[str]:
        """The command line of a program."""
        path = f"{self.fakes}:{self.classes}:{JSON}"
        return ["java", HEAP, "-XX:TieredStopAtLevel=1", *options, "-cp", path, main]

    def drive(self, when: str, binary: Path, *files: Path, grace: int = 30, more: Sequence[str] = ()) -> Heard:
        """Run Drive to its end."""
        words = [*self.java("Drive"), when, str(grace), str(binary), *map(str, files), "--threads", "1", *more]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)
        lines = tuple(tuple(line.split("\t")) for line in done.stdout.splitlines())
        assert done.returncode == 0 or not lines, done.stderr
        return Heard(lines, done.stderr)


def compile_all(folder: Path, tools: Tools) -> Jvm:
    """Compile the app and the example keyboard against Android's API, the drivers against both, and the fakes."""
    jvm = Jvm(folder / "classes", folder / "fakes")
    compile_java(jvm.classes, tools, JAVA, EXAMPLE / "java")
    jvm.fakes.mkdir()
    drivers, fakes = (sorted((HERE / name).rglob("*.java")) for name in ("java", "fakes"))
    run_tool(tools.javac, "--release", "8", "-Xlint:-options", "-d", jvm.fakes, *fakes)
    path = f"{jvm.fakes}:{jvm.classes}:{tools.android_jar}"
    run_tool(tools.javac, "--release", "8", "-Xlint:-options", "-classpath", path, "-d", jvm.classes, *drivers)
    return jvm
