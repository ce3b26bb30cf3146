"""The built wheel, in a fresh environment without torch: what a server or a harness machine installs."""

import json
import signal
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Workplace

pytestmark = pytest.mark.wheel
ROOT = Path(__file__).parent.parent.parent


def succeed(*line: object) -> str:
    done = subprocess.run([*map(str, line)], capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment that holds the wheel and what it depends on, nothing else."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    succeed(*pip, "wheel", "--no-deps", "--wheel-dir", folder / "dist", ROOT)
    (wheel,) = (folder / "dist").glob("phonograd-*.whl")
    venv.create(folder / "env", with_pip=True)
    succeed(folder / "env/bin/python", *pip[1:], "install", wheel)
    return folder / "env" / "bin"


@pytest.fixture(scope="module")
def server(installed: Path, workplace: Workplace) -> Iterator[str]:
    state = workplace.folder / "wheel-state"
    arguments = ("serve", "--artifacts", workplace.artifacts, "--state", state, "--port", "0", "--json", "--quiet")
    line = [*map(str, (installed / "phonograd", *arguments, "--clients-per-round", "1"))]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, cwd="/") as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0


def test_torch_and_onnx_are_not_there(installed: Path) -> None:
    for name in ("torch", "onnx", "onnxruntime", "matplotlib"):
        line = [installed / "python", "-c", f"import {name}"]
        assert subprocess.run(line, capture_output=True, check=False, cwd="/").returncode != 0, name


def test_a_server_machine_needs_no_more(installed: Path, workplace: Workplace, server: str) -> None:
    phonograd = installed / "phonograd"
    described = json.loads(succeed(phonograd, "inspect", workplace.artifacts, "--json"))
    assert described["parameters"] == 4_913
    assert described["operators"] is None
    base, update = workplace.artifacts / "weights.safetensors", workplace.folder / "wheel.update"
    succeed(phonograd, "update", "encode", base, "--base", base, "--tokens", "9", "--out", update)
    receipt = json.loads(succeed(phonograd, "upload", update, "--server", server, "--phone", "p1", "--json"))
    assert receipt["round_closed"]
    report = json.loads(succeed(phonograd, "rounds", "--server", server, "--json"))
    assert report["rounds"][0]["accepted_bytes"] == update.stat().st_size


def test_the_wheel_carries_types_and_the_format(installed: Path) -> None:
    script = (
        "import device_runtime, pathlib; p = pathlib.Path(device_runtime.__file__).parent;"
        "print((p / 'FORMAT.md').is_file(), (p / 'py.typed').is_file(), 'site-packages' in str(p))"
    )
    assert succeed(installed / "python", "-c", script).split() == ["True", "True", "True"]
