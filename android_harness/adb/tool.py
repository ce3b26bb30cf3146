"""Find adb."""

import importlib.util
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from phonograd.android_harness.adb.command import last_line, run_adb
from phonograd.android_harness.errors import AdbError
from phonograd.device_runtime.base.errors import how_to_install

VERSION_SECONDS = 20.0
_NAME = "Android Debug Bridge version "


@dataclass(frozen=True)
class AdbTool:
    """An adb that runs, and its version. `origin` is "PATH", "ANDROID_HOME", "ANDROID_SDK_ROOT" or "adbutils"."""

    path: Path
    version: str
    origin: str


def find_adb() -> AdbTool:
    """The first adb that runs: on PATH, in the Android SDK that the environment names, in the package adbutils.

    Raises AdbError, which says how to get adb and names the programs that are not adb.
    """
    refused = []
    for path, origin in _candidates():
        try:
            return AdbTool(path, read_version(path), origin)
        except AdbError as error:
            refused.append(str(error))
    reason = "; ".join(refused) or "not on PATH, not in ANDROID_HOME"
    raise AdbError(f"adb not found ({reason}); get it: `apt install adb`, or {how_to_install('adb')}")


def _candidates() -> Iterator[tuple[Path, str]]:
    on_path = shutil.which("adb")
    if on_path is not None:
        yield Path(on_path).absolute(), "PATH"
    folders = [
        (Path(os.environ.get(variable, "/nowhere"), "platform-tools"), variable)
        for variable in ("ANDROID_HOME", "ANDROID_SDK_ROOT")
    ]
    package = importlib.util.find_spec("adbutils")  # finds the package without importing it
    places = (package and package.submodule_search_locations) or ()
    folders += [(Path(place, "binaries"), "adbutils") for place in places]
    for folder, origin in folders:
        for path in (folder / "adb", folder / "adb.exe"):
            if path.is_file():
                yield path.absolute(), origin


def read_version(path: Path) -> str:
    """The version of the platform tools (29.0.6-debian), else of the protocol (1.0.41), from `adb version`.

    Raises AdbError if the program is not adb, does not start, or does not answer.
    """
    called = run_adb([path, "version"], VERSION_SECONDS)
    protocol = re.search(rf"^{_NAME}(\S+)", called.out, re.MULTILINE)
    if called.code is None:
        raise AdbError(f"{path}: `adb version` did not answer within {VERSION_SECONDS:.0f} s; is it an adb?")
    if protocol is None:
        printed = last_line(called.output) or f"nothing, exit code {called.code}"
        raise AdbError(f"{path}: not an adb that runs here: `adb version` printed {printed[:120]}")
    tools = re.search(r"^Version (\S+)", called.out, re.MULTILINE)
    return (tools or protocol).group(1)
