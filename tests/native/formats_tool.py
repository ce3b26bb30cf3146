"""Runs formats_tool.cpp: what the C++ readers make of files."""

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

NATIVE = Path(__file__).parents[2] / "device_runtime/native/src"
SOURCES = (
    Path(__file__).with_suffix(".cpp"),
    *(NATIVE / f"base/{name}.cpp" for name in ("cpu_features", "crc32", "files", "mapping")),
    *sorted(NATIVE.glob("formats/*.cpp")),
    NATIVE / "kernels/sha256.cpp",
)

Build = Callable[[str, Sequence[Path]], Path]


class FormatsTool:
    """The compiled program."""

    def __init__(self, build_tool: Build):
        self._program = build_tool("formats_tool", SOURCES)

    def __call__(self, command: str, *paths: Path, **options: Any) -> list[Any]:
        """What it prints for each path; an error is a dict with `status` and `error`."""
        done = subprocess.run([self._program, command, *paths], capture_output=True, check=False, **options)
        assert done.returncode == 0, (done.returncode, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def refusal(self, command: str, path: Path, status: int) -> str:
        """The message of the error that reading `path` must end in."""
        (found,) = self(command, path)
        assert isinstance(found, dict), found
        assert found.get("status") == status, found
        assert "\n" not in found["error"]
        return str(found["error"])
