"""Runs formats_tool.cpp: what the C++ readers make of files."""

import json
import subprocess
from pathlib import Path
from typing import Any

from phonograd.device_runtime.native_build import build_program

NATIVE = Path(__file__).parents[2] / "device_runtime/native/src"
SOURCES = (
    Path(__file__).with_suffix(".cpp"),
    *(NATIVE / f"base/{name}.cpp" for name in ("cpu_features", "crc32", "files", "mapping")),
    *sorted(NATIVE.glob("formats/*.cpp")),
    NATIVE / "kernels/sha256.cpp",
)


def tool(command: str, *paths: Path, **options: Any) -> list[Any]:
    """What the program prints for each path; an error is a dict with `status` and `error`."""
    program = build_program("formats_tool", SOURCES)
    done = subprocess.run([program, command, *paths], capture_output=True, check=False, **options)
    assert done.returncode == 0, (done.returncode, done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def refusal(command: str, path: Path, status: int) -> str:
    """The message of the error that reading `path` must end in."""
    (found,) = tool(command, path)
    assert isinstance(found, dict), found
    assert found.get("status") == status, found
    assert "\n" not in found["error"]
    return str(found["error"])


def pad(message: bytes) -> bytes:
    """The message as FIPS 180-4 pads it to whole blocks."""
    zeros = (55 - len(message)) % 64
    return message + b"\x80" + bytes(zeros) + (8 * len(message)).to_bytes(8, "big")
