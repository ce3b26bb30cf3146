"""Where adb is looked for, and what is not taken for one."""

import sys
from pathlib import Path

import pytest

from phonograd.android_harness.adb.tool import find_adb
from phonograd.android_harness.errors import AdbError


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def adb_that_says(path: Path, text: str) -> Path:
    return program(path, f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")


DEBIANS = "Android Debug Bridge version 1.0.41\nVersion 29.0.6-debian\nInstalled as /usr/bin/adb"


@pytest.fixture
def bin_(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH; there is no SDK and no adbutils."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("cat", "sh", "sleep"):
        (folder / tool).symlink_to(f"/bin/{tool}")
    monkeypatch.setenv("PATH", str(folder))
    for variable in ("ANDROID_HOME", "ANDROID_SDK_ROOT"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "packages")])
    return folder


@pytest.mark.parametrize("variable", ["ANDROID_HOME", "ANDROID_SDK_ROOT"])
def test_on_path_then_in_the_sdk(bin_: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    sdks = adb_that_says(tmp_path / "sdk" / "platform-tools" / "adb", "Android Debug Bridge version 1.0.39")
    monkeypatch.setenv(variable, str(tmp_path / "sdk"))
    found = find_adb()
    assert (found.path, found.version, found.origin) == (sdks, "1.0.39", variable)
    on_path = adb_that_says(bin_ / "adb", DEBIANS)
    found = find_adb()
    assert (found.path, found.version, found.origin) == (on_path, "29.0.6-debian", "PATH")
    adb_that_says(bin_ / "adb", "All database, version 3")  # the next candidate is tried if one is not adb
    assert find_adb().origin == variable


@pytest.mark.usefixtures("bin_")
def test_inside_adbutils_without_importing_it(tmp_path: Path) -> None:
    package = tmp_path / "packages" / "adbutils"
    program(package / "__init__.py", "raise AssertionError('imported')")
    path = adb_that_says(package / "binaries" / "adb", DEBIANS)
    found = find_adb()
    assert (found.path, found.origin) == (path, "adbutils")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (None, r"adb not found \(not on PATH, not in ANDROID_HOME\); get it: `apt install adb`"),
        ("#!/bin/sh\necho All database\n", "not an adb that runs here: `adb version` printed All database"),
        ("#!/bin/sh\nexit 3\n", "not an adb that runs here: `adb version` printed nothing, exit code 3"),
        ("\x7fELF of another machine", "does not start: Exec format error"),
        ("#!/bin/sh\nexec sleep 600\n", "`adb version` did not answer within 0 s"),
    ],
)
def test_none(bin_: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, found: str) -> None:
    if text is not None and "sleep" in text:
        monkeypatch.setattr("phonograd.android_harness.adb.tool.VERSION_SECONDS", 0.4)
    if text is not None:
        program(bin_ / "adb", text)
    with pytest.raises(AdbError, match=found) as error:
        find_adb()
    assert error.value.exit_code == 19
    assert str(error.value).endswith("`apt install adb`, or in a checkout of phonograd, run: pip install '.[adb]'")
