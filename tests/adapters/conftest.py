"""Artifacts and updates for the tests of engines, which run in an environment without torch (make ray-test)."""

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import phonograd
from tests.adapters.places import GENERAL, USERS, Descendants, Workshop
from tests.support.waiting import until

# `make test` collects all tests, in an environment without these.
collect_ignore_glob = [
    f"test_{engine}*.py" for engine, package in (("ray", "ray"), ("flower", "flwr")) if find_spec(package) is None
]
ROOT = Path(__file__).parent.parent.parent
# A Python with `phonograd[export]`, which this one need not have.
EXPORTER = os.environ.get("PHONOGRAD_EXPORTER", sys.executable)
EXPORT = """
import shutil, sys
from tests.adapters.places import MODEL, TRAINING
from tests.support.artifacts import exported
shutil.copytree(exported(MODEL, TRAINING).folder, sys.argv[1])
"""


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """Made once; no test changes it."""
    folder = tmp_path_factory.mktemp("workshop")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    line = [EXPORTER, "-c", EXPORT, str(folder / "artifacts")]
    subprocess.run(line, check=True, env=environment, cwd=ROOT)
    artifacts = phonograd.open_artifacts(folder / "artifacts")
    updates = []
    for user, text in USERS.items():
        updates.append(folder / f"{user}.update")
        settings = phonograd.TrainSettings(phone=user, codec="rot-q4")
        phonograd.train(artifacts, text, settings, rehearsal=GENERAL, update=updates[-1])
    return Workshop(artifacts, tuple(updates))


@pytest.fixture
def descendants(monkeypatch: pytest.MonkeyPatch) -> Iterator[Descendants]:
    """All of them end."""
    started = Descendants(monkeypatch)
    yield started
    until(lambda: not started.running_lines(), f"the end of {started.running_lines()}")
