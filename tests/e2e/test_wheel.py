"""What is distributed, in fresh environments: the wheel, without torch or a compiler, as a server or a harness machine
installs it; the source distribution, which makes the same wheel; an editable install."""

import json
import os
import re
import signal
import subprocess
import tarfile
import urllib.request
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.native_build import (
    build_arm64_library,
    build_host_library,
    build_macos_library,
    build_phone_binary,
)
from phonograd.device_runtime.native_build.checks import check_arm64_library, check_host_library
from phonograd.device_runtime.native_build.compiler import COMPILER_CACHE, Build, compiler_cache
from phonograd.device_runtime.native_build.macos import check_macos_library
from phonograd.device_runtime.native_build.targets import HOST, NATIVE, PHONE, Target, command_sources
from tests.phone.stand_in.debs import python_line
from tests.support.command_line import Run, Workplace
from tests.support.emulated import WITHOUT_SME
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.wheel
ROOT = Path(__file__).parent.parent.parent
# No build may find a place for what it makes, wherever a command is run from the wheel.
NO_CACHE = {"PHONOGRAD_CACHE": "/dev/null/no-cache"}
# One source of so many is compiled again.
SAMPLED = 25
PIP = ("-m", "pip", "--disable-pip-version-check", "--quiet")
# The folders at a checkout's root that are packages of phonograd.
FOLDERS = ("device_runtime", "export", "server_agg", "android_harness", "bench")
LIBRARIES = {f"phonograd/device_runtime/native/lib/{name}" for name in ("libphonograd.so", "phonograd-phone")}


def succeed(*line: object, changed: dict[str, str] = NO_CACHE, cwd: Path = Path("/")) -> str:
    environment = os.environ | changed
    done = subprocess.run([*map(str, line)], capture_output=True, text=True, check=False, cwd=cwd, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def another_distribution(folder: Path) -> Path:
    """The wheel of somebody else's distribution, with the top-level packages `bench` and `export`."""
    about = "neighbour-1.0.dist-info"
    path = folder / "neighbour-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("bench/__init__.py", "OWNER = 'neighbour'")
        archive.writestr("export/__init__.py", "OWNER = 'neighbour'")
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: neighbour\nVersion: 1.0\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    return path


@pytest.fixture(scope="module", autouse=True)
def _only_what_is_installed() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONPATH", raising=False)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("wheel")


@pytest.fixture(scope="module")
def builder(folder: Path) -> Path:
    """The Python of an environment that holds what pyproject.toml requires for building, nothing else: no NumPy."""
    (required,) = re.findall(r"^requires = \[(.*?)^\]", (ROOT / "pyproject.toml").read_text("utf-8"), re.M | re.S)
    venv.create(folder / "build", with_pip=True)
    python = folder / "build/bin/python"
    succeed(python, *PIP, "install", *re.findall(r'^ *"(.+?)"', required, re.M))
    return python


@pytest.fixture(scope="module")
def sdist(folder: Path, builder: Path) -> Path:
    succeed(builder, "-m", "hatchling", "build", "-t", "sdist", "-d", folder / "dist", cwd=ROOT)
    (built,) = (folder / "dist").glob("phonograd-*.tar.gz")
    return built


@pytest.fixture(scope="module")
def wheel(folder: Path, builder: Path) -> Path:
    succeed(builder, "-m", "hatchling", "build", "-t", "wheel", "-d", folder / "dist", cwd=ROOT, changed={})
    (built,) = (folder / "dist").glob("phonograd-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(folder: Path, wheel: Path) -> Path:
    """The `bin` of an environment with the wheel, what it depends on, and a distribution it has nothing to do with."""
    venv.create(folder / "env", with_pip=True)
    succeed(folder / "env/bin/python", *PIP, "install", another_distribution(folder), wheel)
    return folder / "env" / "bin"


@pytest.fixture(scope="module")
def native(installed: Path) -> Path:
    (found,) = installed.parent.glob("lib/python3*/site-packages/phonograd/device_runtime/native")
    return found


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
            assert process.wait(PATIENCE_SECONDS) == 0


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
    report = json.loads(succeed(phonograd, "report", "--server", url, "--json"))
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
    options = ("--strategy", "dp-fedavg", "--deadline-seconds", "60", "--accept-noise", "--port", "0")
    line = [installed / "phonograd", "serve", "--artifacts", workplace.artifacts, "--state", tmp_path / "s", *options]
    served = subprocess.run(line, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)
    assert served.returncode == 10
    assert "pip install '.[dp]'" in served.stderr


def test_the_installed_wheel_passes_its_self_test(installed: Path) -> None:
    assert re.search(r"selftest: \d+ passed, 0 failed; Linux", succeed(installed / "phonograd", "selftest"))


# The tag and the library of each wheel for another system.
OTHERS = {
    "aarch64": ("manylinux_2_17_aarch64", "libphonograd.so"),
    "macos_arm64": ("macosx_11_0_arm64", "libphonograd.dylib"),
    "macos_x86_64": ("macosx_11_0_x86_64", "libphonograd.dylib"),
    "any": ("any", ""),
}


@pytest.fixture(scope="module", params=OTHERS)
def other_wheel(request: pytest.FixtureRequest, folder: Path, builder: Path) -> tuple[str, Path]:
    """A wheel for another system, and its name in OTHERS."""
    place = folder / f"dist-{request.param}"
    succeed(
        *(builder, "-m", "hatchling", "build", "-t", "wheel", "-d", place),
        cwd=ROOT,
        changed={"PHONOGRAD_WHEEL": request.param},
    )
    (built,) = place.glob("phonograd-*.whl")
    return request.param, built


def test_other_wheels_differ_in_the_engine_alone(other_wheel: tuple[str, Path], wheel: Path, tmp_path: Path) -> None:
    kind, path = other_wheel
    tag, library = OTHERS[kind]
    assert path.name.endswith(f"-py3-none-{tag}.whl")
    found, usual = contents(path), contents(wheel)
    engine, program = sorted(LIBRARIES)
    other = str(Path(engine).with_name(library)) if library else ""
    changed = {name for name in {*usual, *found} if found.get(name) != usual.get(name)}
    assert {name.rpartition("/")[2] for name in changed} == {"libphonograd.so", "RECORD", "WHEEL", library} - {""}
    assert found.keys() == (usual.keys() - {engine}) | ({other} - {""})
    assert found[program] == usual[program]
    if library:
        (tmp_path / library).write_bytes(found[other])
        cpu = kind.removeprefix("macos_")
        build = build_arm64_library if kind == "aarch64" else build_macos_library[cpu]
        assert found[other] == build().path.read_bytes()
        if kind == "aarch64":
            check_arm64_library(tmp_path / library)
        else:  # built, not run
            names = check_macos_library(tmp_path / library, cpu).exports
            assert {"pg_round_train", "pg_pull", "Java_org_phonograd_Keyboard_suggest"} <= {*names}
    (described,) = (text.decode() for name, text in found.items() if name.endswith(".dist-info/WHEEL"))
    assert f"Root-Is-Purelib: {str(not library).lower()}" in described


@pytest.mark.parametrize("other_wheel", ["aarch64"], indirect=True)
def test_the_arm64_wheel_passes_its_self_test_under_qemu(
    other_wheel: tuple[str, Path], builder: Path, tmp_path: Path
) -> None:
    """Arm64's own Python runs its NEON kernels, a server, and the same bits of all that is not rounded."""
    line = python_line(tmp_path / "root")
    platforms = [f"--platform={name}_aarch64" for name in ("manylinux_2_17", "manylinux2014", "manylinux_2_28")]
    place = ("--target", tmp_path / "site", "--python-version=3.11", "--only-binary=:all:", "--no-compile")
    succeed(builder, *PIP, "install", *place, *platforms, other_wheel[1])
    cpu = {"QEMU_CPU": WITHOUT_SME}
    said = succeed(
        *line, "-m", "phonograd", "selftest", changed={**NO_CACHE, "PYTHONPATH": str(tmp_path / "site"), **cpu}
    )
    assert re.search(r"selftest: \d+ passed, 0 failed; Linux .* aarch64; .*; kernels neon, portable; bf16 bfmmla", said)


@pytest.mark.parametrize(
    ("python", "platforms"),
    [
        ("3.10", ("manylinux_2_28_x86_64", "manylinux2014_x86_64")),
        ("3.14", ("manylinux_2_28_aarch64", "manylinux2014_aarch64")),
        ("3.14", ("macosx_14_0_arm64", "macosx_11_0_arm64")),
        ("3.14", ("win_amd64",)),
    ],
)
def test_dependencies_have_wheels(
    python: str, platforms: tuple[str, ...], builder: Path, wheel: Path, tmp_path: Path
) -> None:
    """Wheels exist for the oldest Python and the newest, on each system; nothing is installed."""
    requirements = [
        line.partition(": ")[2]
        for name, text in contents(wheel).items()
        if name.endswith(".dist-info/METADATA")
        for line in text.decode().splitlines()
        if line.startswith("Requires-Dist: ") and "extra ==" not in line
    ]
    assert any(one.startswith("numpy") for one in requirements)
    options = [part for platform in platforms for part in ("--platform", platform)]
    line = ("install", "--dry-run", "--target", tmp_path, "--only-binary=:all:", "--python-version", python, *options)
    succeed(builder, *PIP, *line, *requirements)


def test_the_wheel_says_what_it_runs_on(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-manylinux_2_17_x86_64.whl")
    (described,) = (text for name, text in contents(wheel).items() if name.endswith(".dist-info/WHEEL"))
    assert "Root-Is-Purelib: false" in described.decode()


def test_the_wheel_brings_every_file_of_the_folders_under_one_name(wheel: Path) -> None:
    expected = set(LIBRARIES)
    for name in (".", *FOLDERS):
        files = [path for path in (ROOT / "phonograd" / name).rglob("*") if path.is_file()]
        assert files, name
        expected |= {str(path.relative_to(ROOT)) for path in files if path.suffix != ".pyc"}
    expected |= {f"phonograd/docs/{page.name}" for page in (ROOT / "docs").glob("*.md")}
    assert {name for name in contents(wheel) if ".dist-info/" not in name} == expected


def test_site_packages_get_one_name(installed: Path) -> None:
    script = "import importlib.metadata as m; print(*{f.parts[0] for f in m.files('phonograd') if '..' not in f.parts})"
    assert set(succeed(installed / "python", "-c", script).split()) == {"phonograd", "phonograd-0.1.0.dist-info"}


def test_a_source_distribution_makes_the_same_wheel(folder: Path, builder: Path, sdist: Path, wheel: Path) -> None:
    with tarfile.open(sdist) as archive:
        assert not [member.name for member in archive if not member.isfile()]
        assert any(name.endswith("/docs/pictures/dashboard.png") for name in archive.getnames())
    made = folder / "from-sdist"
    line = ("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", made, sdist)
    succeed(builder, *PIP, *line, changed={})
    assert contents(made / wheel.name) == contents(wheel)


def test_an_editable_install_has_the_one_name(builder: Path) -> None:
    succeed(builder, *PIP, "install", "--no-deps", "--no-build-isolation", "--editable", ROOT)
    script = (
        "import phonograd.export as e, phonograd.device_runtime.native_build as b;"
        "print(e.__name__, e.__file__, b.__name__, b.NATIVE)"
    )
    found = succeed(builder, "-c", script).split()
    assert found[::2] == ["phonograd.export", "phonograd.device_runtime.native_build"]
    assert [Path(place).resolve() for place in found[1::2]] == [ROOT / "export/__init__.py", NATIVE.resolve()]


def test_other_packages_of_the_folders_names_are_in_nobodys_way(installed: Path, tmp_path: Path) -> None:
    """Packages of another distribution and of the folder where `python -m phonograd` is run, which come first."""
    script = "import bench, export; print(bench.OWNER, export.OWNER)"
    assert succeed(installed / "python", "-c", script).split() == ["neighbour", "neighbour"]
    for name in FOLDERS:
        (tmp_path / f"{name}.py").write_text("raise SystemExit('this is the user's own')")
    run = (installed / "python", "-m", "phonograd")
    for line in ((installed / "phonograd", "bench"), run, (*run, "bench"), (*run, "export"), (*run, "phone-round")):
        assert "Usage: " in succeed(*line, "--help", cwd=tmp_path)


def test_what_the_wheel_brings_is_what_its_sources_make(native: Path) -> None:
    check_host_library(native / "lib" / "libphonograd.so")
    for build, name in ((build_host_library, "libphonograd.so"), (build_phone_binary, "phonograd-phone")):
        built = build(root=native)
        assert built.cached  # every source, header and flag is the same: nothing had to be compiled
        assert sha256_of_file(native / "lib" / name) == sha256_of_file(built.path)


@pytest.mark.parametrize("target", [HOST, PHONE])
def test_anyone_compiles_the_wheels_sources_to_the_same_bytes(
    native: Path, target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sample of them, from another folder and into an empty cache."""
    sources = command_sources(native)[::SAMPLED]
    first = Build("sample", target, native, sources).objects()
    monkeypatch.setenv(COMPILER_CACHE, compiler_cache())
    monkeypatch.setenv("PHONOGRAD_CACHE", str(tmp_path))
    again = Build("sample", target, native, sources).objects()
    assert len(again) == len(sources) > 2
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
    assert "pip install '.[build]'" in forced.stderr


def test_it_trains_without_torch(phono: Run, installed: Path, workplace: Workplace, tmp_path: Path) -> None:
    train = ("train", workplace.artifacts, "--user", workplace.user, "--out")
    report = json.loads(succeed(installed / "phonograd", *train, tmp_path / "installed", "--json"))
    assert report["steps"] > 0
    assert phono(*train, tmp_path / "checkout").code == 0
    assert (tmp_path / "installed").read_bytes() == (tmp_path / "checkout").read_bytes()
