"""The import rules of ARCHITECTURE.md: each package in a fresh interpreter, and every import statement in the tree."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = {"phonograd", "export", "device_runtime", "server_agg", "android_harness", "bench"}
MAY_IMPORT = {
    "device_runtime": set(),
    "export": {"device_runtime"},
    "server_agg": {"device_runtime"},
    "android_harness": {"device_runtime"},
    "bench": {"device_runtime", "export", "server_agg", "android_harness"},
    "phonograd": PACKAGES,
}
HEAVY = ("torch", "onnx", "onnxruntime", "matplotlib")


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module)
    return names


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_packages_import_only_what_they_may(package: str) -> None:
    for path in modules(package):
        others = {name.split(".")[0] for name in imported(path)} & PACKAGES - {package}
        assert others <= MAY_IMPORT[package], f"{path.relative_to(ROOT)} imports {others - MAY_IMPORT[package]}"


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_every_package_is_typed_and_documented(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()
    for path in modules(package):
        assert ast.get_docstring(ast.parse(path.read_text("utf-8"))), f"{path.relative_to(ROOT)} says nothing of itself"


def loaded_after(code: str) -> set[str]:
    script = f"{code}\nimport sys\nprint(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stdout.split())


@pytest.mark.parametrize("package", ["device_runtime", "server_agg", "android_harness"])
def test_no_heavy_module_where_a_phone_or_server_runs(package: str) -> None:
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in modules(package)]
    light = [name.removesuffix(".__init__") for name in names if name != "device_runtime.backends.ort"]
    loaded = loaded_after("\n".join(f"import {name}" for name in light))
    assert package in loaded
    assert not loaded & set(HEAVY)


@pytest.mark.parametrize("package", ["device_runtime", "server_agg"])
def test_nothing_that_runs_code_out_of_files_where_a_phone_or_server_runs(package: str) -> None:
    """Files and bodies come from strangers: pickle and its kin would run what is in them."""
    forbidden = {"pickle", "_pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml"}
    for path in modules(package):
        names = {name.split(".")[0] for name in imported(path)}
        assert not names & forbidden, f"{path.relative_to(ROOT)} imports {names & forbidden}"
        called = {node.id for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Name)}
        assert not called & {"eval", "exec", "__import__"}, path.relative_to(ROOT)
        assert "allow_pickle=True" not in path.read_text("utf-8"), path.relative_to(ROOT)


def test_help_loads_no_subcommand() -> None:
    loaded = loaded_after(
        "import phonograd.cli\ntry:\n    phonograd.cli.phonograd.main(['--help'])\nexcept SystemExit:\n    pass"
    )
    assert "phonograd.cli" in loaded
    assert not [name for name in loaded if name.startswith("phonograd.commands")]
    assert not loaded & {*HEAVY, "numpy", "rich", "httpx", "starlette", "sqlalchemy"}


def test_commands_load_no_torch_before_they_run() -> None:
    names = [f"phonograd.commands.{path.stem}" for path in modules("phonograd/commands") if path.stem != "__init__"]
    loaded = loaded_after("\n".join(f"import {name}" for name in names))
    assert {"phonograd.commands.server", "phonograd.commands.train", "phonograd.commands.round"} <= loaded
    assert not loaded & set(HEAVY)


def test_no_source_file_outgrows_500_lines() -> None:
    for package in PACKAGES:
        for path in modules(package):
            assert len(path.read_text("utf-8").splitlines()) <= 500, path
