"""The phone's command and a small model for it, which many tests share."""

import pytest

from tests.support.phone_command import Place, make_place


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The phone's command for this host, and artifacts and texts of a small model."""
    return make_place(tmp_path_factory.mktemp("phone"))
