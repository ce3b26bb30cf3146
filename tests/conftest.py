"""Settings of all tests, and the phones that some of them want."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.phone.fixtures import adb_server, adb_servers, adbs, phone, three_phones
from tests.support.artifacts import check_unchanged

__all__ = ["adb_server", "adb_servers", "phone", "three_phones"]

# A deadline is a timing, and so is "too slow": a busy machine would fail both. The same examples in every run: what a
# change is judged by is no lottery. `--hypothesis-profile=default` looks for others.
settings.register_profile("phonograd", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("phonograd")


@pytest.fixture(scope="session", autouse=True)
def shared_artifacts() -> Iterator[None]:
    """What tests share stays as it was made."""
    yield
    check_unchanged()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--real-phone", metavar="SERIAL", help="run the tests marked standin on this attached phone")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    chosen = [mark for mark in metafunc.definition.iter_markers("parametrize") if "adb_server" in mark.args[0]]
    if "adb_server" in metafunc.fixturenames and not chosen:
        both = metafunc.definition.get_closest_marker("both_adbs") is not None
        metafunc.parametrize("adb_server", adbs(metafunc.config, both), indirect=True)
