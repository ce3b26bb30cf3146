"""Tools of C++ for the tests of the native engine: each compiled once, and again when a source or header changed."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from phonograd.device_runtime.native_build import build_program
from tests.support.phone_command import Place, make_place

BuildTool = Callable[[str, Sequence[Path]], Path]


@pytest.fixture(scope="session")
def build_tool() -> BuildTool:
    """`build_tool(name, sources)`: the program of these C++ sources, compiled for this machine."""
    return build_program


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The phone's command for this host, and artifacts and texts of a small model."""
    return make_place(tmp_path_factory.mktemp("phone"))
