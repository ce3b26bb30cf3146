"""What tests of the harness share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from phonograd.android_harness.adb.client import Adb, Timeouts
from phonograd.android_harness.adb.tool import find_adb
from phonograd.android_harness.session import WORK_FOLDER
from tests.android_harness.fake_adb import FakeAdb
from tests.phone.stand_in import AdbServer, StandInPhone
from tests.support.command_line import phono
from tests.support.waiting import PATIENCE_SECONDS, until

__all__ = ["phono"]

# Calls of adb that are not to fail for want of time.
PATIENT = Timeouts(listing=PATIENCE_SECONDS, shell=PATIENCE_SECONDS, push=PATIENCE_SECONDS)


@pytest.fixture
def fake(tmp_path: Path) -> FakeAdb:
    """A fake adb with one phone."""
    return FakeAdb(tmp_path / "tools")


@pytest.fixture
def adb(adb_server: AdbServer) -> Adb:
    """The client that phonograd finds: the server's own."""
    return Adb(find_adb(), PATIENT)


def work_of(phone: StandInPhone) -> Path:
    """The sessions' folder on the phone, as this machine sees it."""
    return phone.root / WORK_FOLDER.lstrip("/")


def nothing_is_left(phone: StandInPhone) -> bool:
    """No program, no lock, no transient file."""
    work = work_of(phone)
    return phone.processes() == [] and not (work / "lock").exists() and not (work / "run").exists()


@pytest.fixture
def watched(phone: StandInPhone) -> Iterator[StandInPhone]:
    yield phone
    until(lambda: nothing_is_left(phone))
