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
HEAVY = ("torch", "onnx", "onnxruntime", "matplotlib")


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


@cache
def imports(name: str) -> set[str]:
    """The modules of phonograd that a module imports by name."""
    found = set()
    for imported in import_statements(modules()[name]):
        assert not imported.startswith("."), f"{name}: write the import in full: {imported}"
        if imported == "phonograd.__version__":  # no more of the module whose names are the whole API's
            continue
        module = imported if imported in modules() else imported.rpartition(".")[0]
        if module in modules() and module != name:
            found.add(module)
    return found


def package_of(name: str) -> str:
    """The folder that a module is in."""
    second = (*name.split("."), "")[1]
    return second if second in FOLDERS else "phonograd"


def test_no_imports_in_a_circle() -> None:
    """A package's own file stands for none of its modules: those who import a module from it don't import it."""
    left = {name: imports(name) for name in modules()}
    while free := {name for name, others in left.items() if not others & left.keys()}:
        left = {name: others for name, others in left.items() if name not in free}
    assert not left, f"a circle of imports, or above one: {sorted(left)}"


def test_one_name_for_each_module() -> None:
    """In a checkout the folders' bare names can be imported as well, and would load each module twice."""
    files = [*modules().values(), *(ROOT / "tests").rglob("*.py"), ROOT / "hatch_build.py"]
    for path in files:
        bare = {name for name in import_statements(path) if name.split(".")[0] in FOLDERS}
        assert not bare, f"{path.relative_to(ROOT)} imports {bare}; the name is phonograd.{min(bare)}"
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


@pytest.mark.parametrize("package", ["device_runtime", "server_agg", "android_harness"])
def test_no_heavy_module_where_a_phone_or_server_runs(package: str) -> None:
    light = [name for name in modules_of(package) if name != "phonograd.device_runtime.engine.ort"]
    loaded = loaded_after("\n".join(f"import {name}" for name in light if not name.endswith(".__main__")))
    assert f"phonograd.{package}" in loaded
    assert not loaded & set(HEAVY)


def test_only_backend_torch_of_simulate_loads_torch() -> None:
    prefix = "phonograd.simulation.batched"
    torch = {name for name, path in modules_of("simulation").items() if "torch" in import_statements(path)}
    assert torch
    assert all(name.startswith(prefix) for name in torch)
    others = [name for name in modules_of("simulation") if not name.startswith(prefix) and "page" not in name]
    assert not loaded_after("\n".join(f"import {name}" for name in others)) & {"torch", "onnx", "onnxruntime"}


def test_engines_are_loaded_only_when_asked_for() -> None:
    others = [name for name in modules() if package_of(name) in ("phonograd", "simulation", "server_agg")]
    names = [name for name in others if not name.endswith(".__main__") and "page" not in name]
    loaded = loaded_after("\n".join(f"import {name}" for name in names if ".batched" not in name))
    assert not {name for name in loaded if name.split(".")[0] in ("ray", "flwr") or ".adapters." in name}
    using = {
        name for name, path in modules().items() if {"ray", "flwr"} & {n.split(".")[0] for n in import_statements(path)}
    }
    assert using
    assert {package_of(name) for name in using} <= {"adapters", "bench"}


def test_aggregation_loads_no_database_and_no_http() -> None:
    loaded = loaded_after("\n".join(f"import {name}" for name in modules() if ".server_agg.aggregation" in name))
    assert "phonograd.server_agg.aggregation.fold" in loaded
    assert not loaded & {"sqlalchemy", "sqlite3", "starlette", "uvicorn", "httpx"}


@pytest.mark.parametrize("package", ["device_runtime", "server_agg"])
def test_nothing_that_runs_code_out_of_files_where_a_phone_or_server_runs(package: str) -> None:
    """Files and bodies come from strangers: pickle and its kin would run what is in them."""
    forbidden = {"pickle", "_pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml"}
    for path in modules_of(package).values():
        names = {name.split(".")[0] for name in import_statements(path)}
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
    loaded = loaded_after("\n".join(f"import {name}" for name in modules() if name.startswith("phonograd.commands.")))
    assert {"phonograd.commands.server", "phonograd.commands.train", "phonograd.commands.phone_round"} <= loaded
    assert not loaded & set(HEAVY)


def test_no_source_file_outgrows_500_lines() -> None:
    for path in modules().values():
        assert len(path.read_text("utf-8").splitlines()) <= 500, path
