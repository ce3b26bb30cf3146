"""The built wheel, in a fresh environment without torch or a compiler: what a server or a harness machine installs."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.native_build import (
    HOST,
    NATIVE,
    PHONE,
    Target,
    build_host_library,
    build_phone_binary,
    check_host_library,
    command_sources,
)
from phonograd.device_runtime.native_build.compiler import COMPILER_CACHE, Build, compiler_cache
from tests.support.command_line import Run, Workplace

pytestmark = pytest.mark.wheel
ROOT = Path(__file__).parent.parent.parent
# No build may find a place for what it makes, wherever a command is run from the wheel.
NO_CACHE = {"PHONOGRAD_CACHE": "/dev/null/no-cache"}
# Every tenth source is compiled again.
SAMPLED = 10
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


def succeed(*line: object, changed: dict[str, str] = NO_CACHE) -> str:
    environment = os.environ | changed
    done = subprocess.run([*map(str, line)], capture_output=True, text=True, check=False, cwd="/", env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    succeed(*PIP, "wheel", "--no-deps", "--wheel-dir", folder / "dist", ROOT, changed={})
    (built,) = (folder / "dist").glob("phonograd-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """The `bin` of an environment that holds the wheel and what it depends on, nothing else."""
    folder = wheel.parent.parent
    venv.create(folder / "env", with_pip=True)
    succeed(folder / "env/bin/python", *PIP[1:], "install", wheel)
    return folder / "env" / "bin"


@pytest.fixture(scope="module")
def server(installed: Path, workplace: Workplace) -> Iterator[dict[str, str]]:
    """A server, as it says itself where it is."""
    state = workplace.folder / "wheel-state"
    arguments = ("serve", "--artifacts", workplace.artifacts, "--state", state, "--port", "0", "--json", "--quiet")
    line = [*map(str, (installed / "phonograd", *arguments, "--clients-per-round", "1"))]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, cwd="/") as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0


def test_torch_onnx_and_compiler_are_not_there(installed: Path) -> None:
    for name in ("torch", "onnx", "onnxruntime", "matplotlib", "ziglang"):
        line = [installed / "python", "-c", f"import {name}"]
        assert subprocess.run(line, capture_output=True, check=False, cwd="/").returncode != 0, name


def test_a_server_machine_needs_no_more(installed: Path, workplace: Workplace, server: dict[str, str]) -> None:
    phonograd, url = installed / "phonograd", server["url"]
    described = json.loads(succeed(phonograd, "inspect", workplace.artifacts, "--json"))
    assert described["parameters"] == 4_913
    assert described["operators"] is None
    base, update = workplace.artifacts / "weights.safetensors", workplace.folder / "wheel.update"
    succeed(phonograd, "update", "encode", base, "--base", base, "--tokens", "9", "--out", update)
    receipt = json.loads(succeed(phonograd, "upload", update, "--server", url, "--phone", "p1", "--json"))
    assert receipt["round_closed"]
    report = json.loads(succeed(phonograd, "rounds", "--server", url, "--json"))
    assert report["rounds"][0]["useful_bytes"] == update.stat().st_size
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    browser.open(server["admin_url"]).close()
    for page, text in (
        ("/", "Round 2"),
        ("/static/dashboard.css", "{"),
        ("/metrics", "phonograd_"),
        ("/healthz", "ok"),
    ):
        with browser.open(url + page) as answer:
            assert text in answer.read().decode(), page


def test_a_private_strategy_says_what_is_missing(installed: Path, workplace: Workplace, tmp_path: Path) -> None:
    options = ("--strategy", "dp-fedavg", "--deadline-seconds", "60", "--port", "0")
    line = [installed / "phonograd", "serve", "--artifacts", workplace.artifacts, "--state", tmp_path / "s", *options]
    served = subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)
    assert served.returncode == 10
    assert "pip install 'phonograd[dp]'" in served.stderr


def test_the_wheel_carries_types_and_the_format(installed: Path) -> None:
    script = (
        "import device_runtime, pathlib; p = pathlib.Path(device_runtime.__file__).parent;"
        "print((p / 'FORMAT.md').is_file(), (p / 'py.typed').is_file(), 'site-packages' in str(p))"
    )
    assert succeed(installed / "python", "-c", script).split() == ["True", "True", "True"]


def test_the_wheel_says_what_it_runs_on_and_brings_the_sources(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-manylinux_2_17_x86_64.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (described,) = (name for name in names if name.endswith(".dist-info/WHEEL"))
        assert "Root-Is-Purelib: false" in archive.read(described).decode()
    sources = [path for path in NATIVE.rglob("*") if path.suffix in {".cpp", ".h", ".inc"}]
    assert {str(path.relative_to(ROOT)) for path in sources} <= names


def test_what_the_wheel_brings_is_what_its_sources_make(installed: Path) -> None:
    (native,) = installed.parent.glob("lib/python3*/site-packages/device_runtime/native")
    check_host_library(native / "lib" / "libphonograd.so")
    for build, name in ((build_host_library, "libphonograd.so"), (build_phone_binary, "phonograd-phone")):
        built = build(root=native)
        assert built.cached  # every source, header and flag is the same: nothing had to be compiled
        assert sha256_of_file(native / "lib" / name) == sha256_of_file(built.path)


@pytest.mark.parametrize("target", [HOST, PHONE])
def test_anyone_compiles_the_wheels_sources_to_the_same_bytes(
    installed: Path, target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sample of them, from another folder and into an empty cache."""
    (native,) = installed.parent.glob("lib/python3*/site-packages/device_runtime/native")
    sources = command_sources(native)[::SAMPLED]
    first = Build("sample", target, native, sources).objects()
    monkeypatch.setenv(COMPILER_CACHE, compiler_cache())
    monkeypatch.setenv("PHONOGRAD_CACHE", str(tmp_path))
    again = Build("sample", target, native, sources).objects()
    assert len(again) == len(sources) > 5
    assert not {path.parent for path in again} & {path.parent for path in first}
    assert [path.name for path in again] == [path.name for path in first]
    assert [sha256_of_file(path) for path in again] == [sha256_of_file(path) for path in first]


def test_the_phone_binary_is_copied(installed: Path, tmp_path: Path) -> None:
    out = tmp_path / "phonograd-phone"
    document = json.loads(succeed(installed / "phonograd", "build-phone", "--out", out, "--json"))
    assert (document["origin"], document["sha256"]) == ("prebuilt", sha256_of_file(out))
    forced = subprocess.run(
        [installed / "phonograd", "build-phone", "--force", "--out", out], capture_output=True, text=True, check=False
    )
    assert forced.returncode == 10
    assert "pip install 'phonograd[build]'" in forced.stderr


def test_it_trains_without_torch(phono: Run, installed: Path, workplace: Workplace, tmp_path: Path) -> None:
    train = ("train", workplace.artifacts, "--user", workplace.user, "--backend", "native", "--out")
    report = json.loads(succeed(installed / "phonograd", *train, tmp_path / "installed", "--json"))
    assert report["loss_last"] < report["loss_first"]
    assert phono(*train, tmp_path / "checkout").code == 0
    assert (tmp_path / "installed").read_bytes() == (tmp_path / "checkout").read_bytes()
