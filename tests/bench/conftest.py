from pathlib import Path

import pytest

from phonograd.export.presets import preset_named
from tests.support.artifacts import exported


@pytest.fixture(scope="session")
def artifacts() -> Path:
    return exported(preset_named("tiny").model, seed=0).folder
