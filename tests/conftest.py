"""Settings of all tests, and the phones that some of them want."""

import os
import signal
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.phone.fixtures import adb_server, adb_servers, adbs, phone, three_phones, two_phones
from tests.support.artifacts import SHARED, check_unchanged
from tests.support.bare_machine import hide_programs
from tests.support.margins import margin, seed, threads

__all__ = ["adb_server", "adb_servers", "margin", "phone", "seed", "threads", "three_phones", "two_phones"]

# No deadline and no "too slow": a busy machine would fail both. derandomize: every run tries the same examples, so that
# CI does not fail by chance; `--hypothesis-profile=default` looks for new ones.
settings.register_profile("phonograd", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("phonograd")

# A shell's background jobs ignore SIGINT, and so would every process that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# pytest-xdist tells its workers the width of the terminal, for which tables would leave columns out.
os.environ.pop("COLUMNS", None)


def pytest_configure(config: pytest.Config) -> None:
    if SHARED not in os.environ:  # a worker has its parent's
        folder = tempfile.TemporaryDirectory(prefix="phonograd-tests-")
        os.environ[SHARED] = folder.name
        config.add_cleanup(folder.cleanup)
        config.add_cleanup(lambda: os.environ.pop(SHARED))


@pytest.fixture(scope="session", autouse=True)
def own_state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Servers that tests start leave their owner's files in no user's home, and phones no models."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state-home")))
        patch.setenv("PHONOGRAD_MODEL_CACHE", str(tmp_path_factory.mktemp("models")))
        yield


@pytest.fixture(scope="session", autouse=True)
def shared_artifacts() -> Iterator[None]:
    """No test changes the artifacts that all share."""
    yield
    check_unchanged()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    # Around all fixtures of the test, so that none starts too early.
    with hide_programs(item):
        return (yield)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--real-phone", metavar="SERIAL", help="run the tests marked standin on this attached phone")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    chosen = [mark for mark in metafunc.definition.iter_markers("parametrize") if "adb_server" in mark.args[0]]
    if "adb_server" in metafunc.fixturenames and not chosen:
        both = metafunc.definition.get_closest_marker("both_adbs") is not None
        metafunc.parametrize("adb_server", adbs(metafunc.config, both), indirect=True)
