"""`import phonograd`: what it loads, what it names, and what type checkers see of it."""

import ast
import dataclasses
import inspect
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, get_type_hints

import pytest

import phonograd
from tests.test_layering import loaded_after

if TYPE_CHECKING:
    from typing import assert_type

    def type_checkers_see_every_name(model: phonograd.Model, server: phonograd.RunningServer) -> None:
        """Held by `make check`: behind a `__getattr__` these would all be Any."""
        assert_type(phonograd.open_artifacts("artifacts"), phonograd.Artifacts)
        assert_type(phonograd.train("artifacts", "user.txt").report.losses, tuple[float, ...])
        assert_type(model.evaluate(["a message"]).perplexity, float)
        assert_type(phonograd.predict("artifacts", "a")[0].word, str)
        assert_type(phonograd.read_update("update"), phonograd.UpdateInfo)
        assert_type(phonograd.join_round(server.url, "artifacts").weights, Path)
        assert_type(phonograd.upload(server.admin, "update").round_closed, bool)
        assert_type(phonograd.__version__, str)


def test_import_loads_no_library() -> None:
    loaded = loaded_after("import phonograd")
    assert "phonograd" in loaded
    assert not {name for name in loaded if name.startswith("phonograd.")}
    assert not loaded & {"torch", "numpy", "click", "rich", "httpx", "onnx", "starlette", "sqlalchemy"}


def test_a_name_loads_what_it_needs_alone() -> None:
    loaded = loaded_after("import phonograd; phonograd.open_artifacts")
    assert "phonograd.device_runtime.formats.manifest" in loaded
    assert not loaded & {"torch", "click", "rich", "httpx", "onnx", "starlette", "sqlalchemy"}


def test_every_name_is_loaded_from_where_type_checkers_find_it() -> None:
    tree = ast.parse(Path(phonograd.__file__).with_suffix(".pyi").read_text("utf-8"))
    imports = [(node.module, alias) for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert all(alias.name == alias.asname for _, alias in imports)  # for type checkers, any other is private
    assert sorted(alias.name for _, alias in imports) == phonograd.__all__
    for module, alias in imports:
        assert getattr(phonograd, alias.name) is getattr(import_module(str(module)), alias.name)
    assert set(phonograd.__all__) <= set(dir(phonograd))


def test_no_name_is_a_module_too() -> None:
    folder = Path(phonograd.__file__).parent
    assert not {path.stem for path in folder.iterdir()} & set(phonograd.__all__)


def test_an_unknown_name() -> None:
    with pytest.raises(AttributeError, match="module 'phonograd' has no attribute 'nothing'"):
        getattr(phonograd, "nothing")  # noqa: B009


def functions_of(name: str) -> Iterator[object]:
    """A function, or the public methods of a class that are its own."""
    found = getattr(phonograd, name)
    if not inspect.isclass(found):
        yield found
        return
    for method, value in vars(found).items():
        if not method.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
            yield value.fget if isinstance(value, property) else value


def test_every_name_is_documented_and_typed() -> None:
    for name in phonograd.__all__:
        found = getattr(phonograd, name)
        assert inspect.getdoc(found), name
        if dataclasses.is_dataclass(found):
            assert set(get_type_hints(found)) >= {field.name for field in dataclasses.fields(found)}
            assert found.__doc__ and not found.__doc__.startswith(f"{name}(")  # not the one that dataclasses write
        for function in functions_of(name):
            assert inspect.getdoc(function), function
            asked = set(inspect.signature(function).parameters) - {"self"}  # type: ignore[arg-type]
            assert set(get_type_hints(function)) >= {*asked, "return"}, function


def test_python_m_phonograd_is_the_command_line() -> None:
    done = subprocess.run([sys.executable, "-m", "phonograd", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"phonograd, version {phonograd.__version__}"
