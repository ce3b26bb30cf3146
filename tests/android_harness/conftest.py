"""What tests of the harness share."""

from pathlib import Path

import pytest

from tests.android_harness.fake_adb import FakeAdb
from tests.support.command_line import phono

__all__ = ["phono"]


@pytest.fixture
def fake(tmp_path: Path) -> FakeAdb:
    """A fake adb with one phone."""
    return FakeAdb(tmp_path / "tools")
