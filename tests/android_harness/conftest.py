"""What tests of the harness share."""

from pathlib import Path

import pytest

from phonograd.android_harness.adb.client import Timeouts
from tests.android_harness.fake_adb import FakeAdb
from tests.support.command_line import phono
from tests.support.waiting import PATIENCE_SECONDS

__all__ = ["phono"]

# Calls of adb that are not to fail for want of time.
PATIENT = Timeouts(listing=PATIENCE_SECONDS, shell=PATIENCE_SECONDS, push=PATIENCE_SECONDS)


@pytest.fixture
def fake(tmp_path: Path) -> FakeAdb:
    """A fake adb with one phone."""
    return FakeAdb(tmp_path / "tools")
