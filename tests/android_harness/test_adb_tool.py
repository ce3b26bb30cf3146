"""Where adb is looked for, and what is not taken for one."""

import sys
from pathlib import Path

import pytest

from phonograd.android_harness.adb.tool import find_adb
from phonograd.android_harness.errors import AdbError
from tests.android_harness.fake_adb import FakeAdb


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


def test_on_path_first(bin_: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = adb_that_says(bin_ / "adb", DEBIANS)
    adb_that_says(tmp_path / "sdk" / "platform-tools" / "adb", "Android Debug Bridge version 1.0.41")
    monkeypatch.setenv("ANDROID_HOME", str(tmp_path / "sdk"))
    found = find_adb()
    assert (found.path, found.version, found.origin) == (path, "29.0.6-debian", "PATH")


@pytest.mark.parametrize("variable", ["ANDROID_HOME", "ANDROID_SDK_ROOT"])
def test_in_the_sdk(bin_: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    path = adb_that_says(tmp_path / "sdk" / "platform-tools" / "adb", "Android Debug Bridge version 1.0.39")
    monkeypatch.setenv(variable, str(tmp_path / "sdk"))
    found = find_adb()
    assert (found.path, found.version, found.origin) == (path, "1.0.39", variable)


@pytest.mark.usefixtures("bin_")
def test_inside_adbutils_without_importing_it(tmp_path: Path) -> None:
    package = tmp_path / "packages" / "adbutils"
    program(package / "__init__.py", "raise AssertionError('imported')")
    path = adb_that_says(package / "binaries" / "adb", DEBIANS)
    found = find_adb()
    assert (found.path, found.origin) == (path, "adbutils")


def test_the_next_candidate_is_tried_if_one_is_not_adb(
    bin_: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adb_that_says(bin_ / "adb", "All database, version 3")
    adb_that_says(tmp_path / "sdk" / "platform-tools" / "adb", DEBIANS)
    monkeypatch.setenv("ANDROID_HOME", str(tmp_path / "sdk"))
    assert find_adb().origin == "ANDROID_HOME"


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
    assert str(error.value).endswith("get it: `apt install adb`, or `pip install 'phonograd[adb]'`")


@pytest.mark.usefixtures("bin_")
def test_the_fake_is_one(fake: FakeAdb, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(fake.folder))
    assert find_adb() == fake.tool
