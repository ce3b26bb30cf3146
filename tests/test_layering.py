"""What packages load in fresh interpreters, and rules of imports that no contract in pyproject.toml says."""

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
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
    """Those of a folder; `phonograd` is the command line alone."""
    return {name: path for name, path in modules().items() if package_of(name) == package}


def import_statements(path: Path) -> Iterator[str]:
    """What a file imports, each name with its module: `from a import b` is a.b, whether b is a module or not."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield from (f"{module}.{alias.name}" for alias in node.names)


def package_of(name: str) -> str:
    """The folder that a module is in."""
    second = (*name.split("."), "")[1]
    return second if second in FOLDERS else "phonograd"


def test_one_name_for_each_module() -> None:
    """In a checkout the folders' bare names can be imported as well, and would load each module twice."""
    files = [*modules().values(), *(ROOT / "tests").rglob("*.py"), ROOT / "hatch_build.py"]
    for path in files:
        bare = {name for name in import_statements(path) if name.split(".")[0] in FOLDERS}
        assert not bare, f"{path.relative_to(ROOT)} imports {bare}; the name is phonograd.{min(bare)}"
    for path in modules().values():
        assert not any(name.startswith(".") for name in import_statements(path)), f"{path}: write imports in full"
    loaded = loaded_after("import phonograd.cli, phonograd.commands.bench, phonograd.commands.phone_round")
    assert not {name for name in loaded if name.split(".")[0] in FOLDERS}


@pytest.mark.parametrize("package", AT_THE_ROOT)
def test_the_link_to_a_folder(package: str) -> None:
    assert (ROOT / "phonograd" / package).readlink() == Path("..") / package


@pytest.mark.parametrize("package", (*FOLDERS, "phonograd"))
def test_every_package_is_typed_and_documented(package: str) -> None:
    assert (Path(phonograd.__file__).parent / ("" if package == "phonograd" else package) / "py.typed").is_file()
    for path in modules_of(package).values():
        assert ast.get_docstring(ast.parse(path.read_text("utf-8"))), f"{path.relative_to(ROOT)} says nothing of itself"


def loaded_after(code: str) -> set[str]:
    script = f"{code}\nimport sys\nprint(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stdout.split())


HEAVY = {"torch", "onnx", "onnxruntime", "matplotlib"}
# Modules by the beginnings of their names, those left out, and what all of them together do not load.
LIGHT = {
    "a phone": (("device_runtime",), (".engine.ort",), HEAVY),
    "a server": (("server_agg",), (), {*HEAVY, "ray", "flwr"}),
    "a harness": (("android_harness",), (), HEAVY),
    "a fold": (("server_agg.aggregation",), (), {"sqlalchemy", "sqlite3", "starlette", "uvicorn", "httpx"}),
    "a simulation": (("simulation",), ("page",), {"torch", "onnx", "onnxruntime", "ray", "flwr"}),
    "commands before they run": (("commands",), (), {*HEAVY, "ray", "flwr", "phonograd.adapters"}),
    "the API": (("api",), (), {"ray", "flwr", "phonograd.adapters"}),
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


@pytest.mark.parametrize("package", ["device_runtime", "server_agg"])
def test_nothing_that_runs_code_out_of_files_where_a_phone_or_server_runs(package: str) -> None:
    """Files and bodies come from strangers. Of pickle and its kin, a contract in pyproject.toml says the same."""
    for path in modules_of(package).values():
        called = {node.id for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Name)}
        assert not called & {"eval", "exec", "__import__"}, path.relative_to(ROOT)
        assert "allow_pickle=True" not in path.read_text("utf-8"), path.relative_to(ROOT)


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
