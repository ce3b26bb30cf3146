"""The APK's tools, the classes for a JVM, and a small model to train."""

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from phonograd.android_harness.app import Aar, Tools, build_aar, find_tools
from tests.android_harness.app.jvm import Jvm, compile_all
from tests.android_harness.app.round_phones import Phones
from tests.support.phone_command import Place, make_place, text_of

# So many events as no pipe holds: the process is still there when a signal comes.
STEPS = 400
Script = Callable[[str], Path]


@pytest.fixture(scope="session")
def tools() -> Tools:
    return find_tools()


@pytest.fixture(scope="session")
def jvm(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Jvm:
    return compile_all(tmp_path_factory.mktemp("java"), tools)


@pytest.fixture(scope="session")
def aar(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Aar:
    return build_aar(tmp_path_factory.mktemp("aar") / "phonograd.aar", tools)


@pytest.fixture(scope="session")
def unpacked(aar: Aar, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The AAR's files."""
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(aar.path) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The phone's command for this host, artifacts, and a text of STEPS windows."""
    place = make_place(tmp_path_factory.mktemp("phone"))
    place.user.write_bytes(text_of(3, STEPS * 15))
    return place


@pytest.fixture(scope="session")
def reference(place: Place, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The update of an epoch that nobody disturbed."""
    update = tmp_path_factory.mktemp("reference") / "update"
    assert place.train("--round", 3, "--phone", "phone-17", "--update", update, "--threads", 1).code == 0
    return update.read_bytes()


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """A shell script to stand for the binary."""

    def write(body: str) -> Path:
        path = tmp_path / "binary"
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return path

    return write


@pytest.fixture
def phones(jvm: Jvm, place: Place, tmp_path: Path) -> Phones:
    """A phone that takes part in rounds."""
    return Phones(jvm, place, tmp_path)
