"""The phone's command and a small model for it, which many tests share; phones of a masked round."""

from pathlib import Path
from typing import Any

import pytest

from tests.native.masked_phones import Fleet
from tests.support.phone_command import Place, make_place


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The phone's command for this host, and artifacts and texts of a small model."""
    return make_place(tmp_path_factory.mktemp("phone"))


@pytest.fixture
def trio(tmp_path: Path) -> tuple[Fleet, dict[str, Any]]:
    """Five phones of a masked round, of which two may drop out."""
    fleet = Fleet(tmp_path)
    fleet.settings["dropouts"] = 0.4
    return fleet, {name: fleet.phone(name, fleet.grid(name, seed)) for seed, name in enumerate("abcde")}
