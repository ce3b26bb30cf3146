"""The program of docs/flower.md on a SuperLink with SuperNodes, and simulated: the models of phonograd's own server."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.adapters.places import GENERAL, Descendants, Workshop, served
from tests.support.ports import reserved_port
from tests.support.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.flower
PAGE = (Path(__file__).parent.parent.parent / "docs/flower.md").read_text("utf-8")
COMMANDS = Path(sys.executable).parent
TEXTS = {f"phone-{number}": GENERAL[number :: 2 + number] for number in range(2)}


def block(language: str) -> str:
    """The page's only block of code in a language."""
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(found)


@dataclass(frozen=True)
class Flower:
    """Flower's commands in a folder of their own."""

    folder: Path
    port: int
    resources: ExitStack

    def start(self, command: str, *arguments: object) -> None:
        """Start it; it ends with the test."""
        log = self.resources.enter_context((self.folder / f"{command}.log").open("a"))
        line = [COMMANDS / command, "--insecure", *arguments]
        process = subprocess.Popen([*map(str, line)], stdout=log, stderr=log)
        self.resources.callback(process.wait, PATIENCE_SECONDS)
        self.resources.callback(process.terminate)

    def superlink(self, *arguments: object) -> None:
        self.start("flower-superlink", "--disable-runtime-dependency-installation", "--port", self.port, *arguments)
        until(self._answers)

    def _answers(self) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/health").is_success
        except httpx.TransportError:
            return False

    def run(self, workshop: Workshop, *arguments: str) -> str:
        """Run the page's program. Returns what its server printed."""
        paths = {"artifacts": workshop.artifacts.folder, "texts": self.folder, "models": self.folder / "models"}
        config = " ".join(f'{name}="{path}"' for name, path in paths.items())
        line = [COMMANDS / "flwr", "run", self.folder / "app", "here", "--stream", "--run-config", config, *arguments]
        done = subprocess.run([*map(str, line)], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True)
        return done.stdout + done.stderr


@pytest.fixture
def flower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Flower]:
    (tmp_path / "app").mkdir()
    (tmp_path / "app/app.py").write_text(block("python"))
    (tmp_path / "app/pyproject.toml").write_text(block("toml"))
    for number, text in enumerate(TEXTS.values()):
        (tmp_path / f"{number}.txt").write_text("\n".join(text))
    home = {"FLWR_HOME": tmp_path / "home", "FLWR_TELEMETRY_ENABLED": 0, "FLWR_DISABLE_UPDATE_CHECK": 1}
    for name, value in home.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("PATH", f"{COMMANDS}{os.pathsep}{os.environ['PATH']}")
    descendants = Descendants(monkeypatch)
    with reserved_port() as port, ExitStack() as resources:
        # Ray's files, which stay; a short path, as its sockets' paths must fit 107 bytes
        monkeypatch.setenv("RAY_TMPDIR", resources.enter_context(tempfile.TemporaryDirectory(prefix="pg-")))
        (tmp_path / "home").mkdir()
        (tmp_path / "home/config.toml").write_text(
            f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
        )
        yield Flower(tmp_path, port, resources)
    until(lambda: not descendants.left(), f"the end of {descendants.left()}")


@pytest.fixture(scope="module")
def model(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The hash of our own server's model after the same two rounds."""
    return served(workshop.artifacts, TEXTS, tmp_path_factory.mktemp("served"))


def test_on_a_superlink_with_supernodes(workshop: Workshop, flower: Flower, model: str) -> None:
    flower.superlink()
    with reserved_port() as one, reserved_port() as other:
        for number, port in enumerate((one, other)):
            address = ("--superlink", f"127.0.0.1:{flower.port}", "--port", port)
            flower.start("flower-supernode", *address, "--node-config", f"partition-id={number}")
        said = flower.run(workshop)
    assert f"model {model}" in said, said


def test_simulated(workshop: Workshop, flower: Flower, model: str) -> None:
    flower.superlink("--simulation")
    said = flower.run(
        workshop, "--federation-config", "num-supernodes=2 init-args-num-cpus=2 client-resources-num-cpus=1"
    )
    assert f"model {model}" in said, said
