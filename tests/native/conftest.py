"""Tools of C++ for the tests of the native engine: each compiled once, and again when a source or header changed."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NATIVE = ROOT / "device_runtime/native"
SRC = NATIVE / "src"
BUILT = ROOT / "build/native-tests"
FLAGS = (
    *("-target", "x86_64-linux-gnu.2.17", "-O2", "-std=c++17", "-fno-sanitize=undefined", "-pthread"),
    *("-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror", f"-I{SRC}", f"-I{NATIVE / 'include'}"),
)

BuildTool = Callable[[str, Sequence[Path]], Path]


def _build(name: str, sources: Sequence[Path]) -> Path:
    headers = sorted(path for path in NATIVE.rglob("*.h") if path.is_file())
    digest = hashlib.sha256("\0".join([*FLAGS, *map(str, sources)]).encode())
    for path in (*sources, *headers):
        digest.update(path.read_bytes())
    tool = BUILT / f"{name}-{digest.hexdigest()[:16]}"
    if not tool.exists():
        BUILT.mkdir(parents=True, exist_ok=True)
        for stale in BUILT.glob(f"{name}-*"):
            stale.unlink(missing_ok=True)
        partial = BUILT / f"{name}-partial.{os.getpid()}"
        command = [sys.executable, "-m", "ziglang", "c++", *FLAGS, *map(str, sources), "-o", str(partial)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        partial.rename(tool)
    return tool


@pytest.fixture(scope="session")
def build_tool() -> BuildTool:
    """`build_tool(name, sources)`: the program of these C++ sources, compiled for this machine."""
    return _build
