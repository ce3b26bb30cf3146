"""What packages load in fresh interpreters, and rules of imports that no contract in pyproject.toml says."""

import re
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

import phonograd

ROOT = Path(__file__).parent.parent
# The packages of phonograd. Those at a checkout's root are links in phonograd/ there, and folders in a wheel.
AT_THE_ROOT = ("device_runtime", "export", "server_agg", "android_harness", "bench")
FOLDERS = (*AT_THE_ROOT, "demo", "simulation", "adapters", "papers")


@cache
def modules() -> Mapping[str, Path]:
    """Every module of phonograd by its name."""
    found = {}
    for folder in ("phonograd", *AT_THE_ROOT):
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            if folder == "phonograd" and parts[1] in AT_THE_ROOT:
                continue  # newer versions of Python enter links
            name = ".".join(parts if folder == "phonograd" else ("phonograd", *parts)).removesuffix(".__init__")
            found[name] = path
    return found


def modules_of(package: str) -> dict[str, Path]:
    """Modules of a folder; `phonograd` is the command line alone."""
    return {name: path for name, path in modules().items() if package_of(name) == package}


IMPORT = re.compile(r"^\s*(?:from|import)\s+([\w.]+)", re.MULTILINE)


def imported_by(path: Path) -> set[str]:
    """The modules that a file's import statements name."""
    return set(IMPORT.findall(path.read_text("utf-8")))


def package_of(name: str) -> str:
    """The folder that a module is in."""
    second = (*name.split("."), "")[1]
    return second if second in FOLDERS else "phonograd"


def test_one_name_for_each_module() -> None:
    """Bare folder names can be imported in a checkout too, and would load each module twice."""
    files = [*modules().values(), *(ROOT / "tests").rglob("*.py"), ROOT / "hatch_build.py"]
    for path in files:
        bare = {name for name in imported_by(path) if name.split(".")[0] in FOLDERS}
        assert not bare, f"{path.relative_to(ROOT)} imports {bare}; the name is phonograd.{min(bare)}"
    for path in modules().values():
        assert not any(name.startswith(".") for name in imported_by(path)), f"{path}: write imports in full"


def test_links_to_folders_and_types_of_packages() -> None:
    for package in AT_THE_ROOT:
        assert (ROOT / "phonograd" / package).readlink() == Path("..") / package
    for package in (*FOLDERS, ""):
        assert (Path(phonograd.__file__).parent / package / "py.typed").is_file(), package


def loaded_after(code: str) -> set[str]:
    script = f"{code}\nimport sys\nprint(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stdout.split())


HEAVY = {"torch", "onnx", "onnxruntime", "matplotlib"}
ENGINES = {"ray", "flwr", "phonograd.adapters"}
# Modules by the beginnings of their names, those left out, and what all of them together do not load.
LIGHT = {
    "a phone, a server, a harness, commands before they run": (
        ("device_runtime", "server_agg", "android_harness", "commands"),
        (".engine.ort",),
        {*HEAVY, *ENGINES},
    ),
    "a fold": (("server_agg.aggregation",), (), {"sqlalchemy", "sqlite3", "starlette", "uvicorn", "httpx"}),
    "a simulation and the API": (
        ("simulation", "api"),
        (".page",),
        {"torch", "onnx", "onnxruntime", *ENGINES},
    ),
}


@pytest.mark.parametrize("name", LIGHT)
def test_what_is_not_loaded(name: str) -> None:
    beginnings, left_out, absent = LIGHT[name]
    chosen = [
        module
        for module in modules()
        if module.startswith(tuple(f"phonograd.{one}" for one in beginnings))
        and not any(part in module for part in (*left_out, ".__main__"))
    ]
    loaded = loaded_after("\n".join(f"import {module}" for module in chosen))
    assert chosen
    assert set(chosen) <= loaded
    assert not loaded & absent
    assert not {name for name in loaded if name.split(".")[0] in FOLDERS}, "a module loaded twice, by a bare name"


@pytest.mark.parametrize("package", ["device_runtime", "server_agg"])
def test_nothing_that_runs_code_out_of_files_where_a_phone_or_server_runs(package: str) -> None:
    """Files and bodies come from strangers. Of pickle and its kin, a contract in pyproject.toml says the same."""
    for path in modules_of(package).values():
        text = path.read_text("utf-8")
        assert not re.search(r"(?<![\w.])(eval|exec|__import__)\(|allow_pickle=True", text), path.relative_to(ROOT)


def test_help_loads_no_subcommand() -> None:
    loaded = loaded_after(
        "import phonograd.cli\ntry:\n    phonograd.cli.phonograd.main(['--help'])\nexcept SystemExit:\n    pass"
    )
    assert "phonograd.cli" in loaded
    assert not [name for name in loaded if name.startswith("phonograd.commands")]
    assert not loaded & (HEAVY | {"numpy", "rich", "httpx", "starlette", "sqlalchemy"})


def test_no_source_file_outgrows_500_lines() -> None:
    for path in modules().values():
        assert len(path.read_text("utf-8").splitlines()) <= 500, path
