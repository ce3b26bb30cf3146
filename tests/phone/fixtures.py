"""What tests with phones ask for: `adb_server`, `phone`, `two_phones`, `three_phones`, and what their markers mean.

A test runs with adb 36; with `both_adbs` also with adb 29. Both are needed where the client's own part is looked at, as
there they differ: what they speak (first versions of stat, list and send), what they say and
exit with when a phone or a server is lost, and how they start a server. What the phone does is the same by either.

Each process of the tests has one server of each version, with a port, a HOME and keys of its own, from its first test
with phones to its last; a test finds it without phones. Phones are booted for each test: that takes 0.2 s, and no test
finds what another left.

With `--real-phone SERIAL` the phone is attached hardware, reached by this machine's own adb server; a test that needs
what only the stand-in can do (its faults, another phone) skips itself and says so.
"""

import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.phone.stand_in import A53, A76, MAX, AdbServer, PhoneSpec, StandInPhone
from tests.phone.stand_in.adb_server import SECLUDED

USUAL_ADB = "adb36"
ADBS = ("adb29", USUAL_ADB)
FOLDER = "/data/local/tmp"


class RealPhone:
    """Attached hardware, where a stand-in is expected."""

    def __init__(self, serial: str):
        self.serial = serial

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        pytest.skip(f"{name}: only the stand-in phone has it, and this is {self.serial}")


class RealAdb(AdbServer):
    """This machine's own adb server, left as it is."""

    def __init__(self) -> None:
        found = shutil.which("adb")
        if found is None:
            pytest.fail("--real-phone needs adb in PATH")
        super().__init__(Path(found))
        self.environment = dict(os.environ)

    @property
    def is_running(self) -> bool:
        return self.run("devices").returncode == 0

    def start(self) -> None:
        """Do nothing: it runs, or adb starts it."""

    def kill(self) -> None:
        pytest.skip("other phones of this machine may be in use: its adb server is not ended")

    def connect(self, phone: StandInPhone, expected: str = "device") -> None:
        pytest.skip(f"{phone.spec.model}: another phone than the attached one")


def adb_path(name: str) -> Path:
    """adb 29 is Debian's, adb 36 the one inside the package adbutils."""
    if name == "adb29":
        return Path("/usr/bin/adb")
    found = importlib.util.find_spec("adbutils")  # its import takes seconds, and is not needed
    if found is None or found.origin is None:
        pytest.fail("adbutils is not installed: pip install 'phonograd[dev]'")
    return Path(found.origin).parent / "binaries" / "adb"


def adbs(config: pytest.Config, both: bool) -> Sequence[str]:
    """The versions of adb to test with: attached hardware is reached by the one that is in PATH."""
    if config.getoption("--real-phone"):
        return ("adb",)
    return ADBS if both else (USUAL_ADB,)


@pytest.fixture(scope="session")
def adb_servers() -> Iterator[Callable[[str], AdbServer]]:
    """The server of a version, started when it is first asked for."""
    running: dict[str, AdbServer] = {}
    with ExitStack() as servers:

        def server(version: str) -> AdbServer:
            if version not in running:
                running[version] = servers.enter_context(AdbServer(adb_path(version)))
            return running[version]

        yield server


@pytest.fixture
def adb_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdbServer]:
    """A server without phones. In this test `adb` in PATH is its adb, and every adb client talks to that server."""
    if request.config.getoption("--real-phone"):
        yield RealAdb()
        return
    server: AdbServer = request.getfixturevalue("adb_servers")(request.param)
    server.reset()
    tools = tmp_path_factory.mktemp("adb")
    (tools / "adb").symlink_to(server.adb)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PHONOGRAD_CACHE", os.environ.get("PHONOGRAD_CACHE", str(Path.home() / ".cache" / "phonograd")))
        patch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
        for name in ("ANDROID_ADB_SERVER_PORT", "HOME", *SECLUDED):
            patch.setenv(name, server.environment[name])
        yield server


@pytest.fixture
def phone(request: pytest.FixtureRequest, adb_server: AdbServer) -> Iterator[StandInPhone | RealPhone]:
    """One phone, connected."""
    serial = request.config.getoption("--real-phone")
    if serial:
        before = _names(adb_server, serial)
        yield RealPhone(serial)
        for name in _names(adb_server, serial) - before:
            adb_server.run("-s", serial, "shell", f"rm -rf '{FOLDER}/{name}'")
        return
    with StandInPhone() as stand_in:
        adb_server.connect(stand_in)
        yield stand_in


def _names(adb_server: AdbServer, serial: str) -> set[str]:
    """What is in the folder that tests write to."""
    return set(adb_server.run("-s", serial, "shell", f"ls -A {FOLDER}").stdout.splitlines())


@contextmanager
def _phones(request: pytest.FixtureRequest, adb_server: AdbServer, *specs: PhoneSpec) -> Iterator[list[StandInPhone]]:
    if request.config.getoption("--real-phone"):
        pytest.skip(f"{len(specs)} phones: attached hardware is one")
    with ExitStack() as open_phones:
        phones = [open_phones.enter_context(StandInPhone(spec)) for spec in specs]
        for stand_in in phones:
            adb_server.connect(stand_in)
        yield phones


@pytest.fixture
def two_phones(request: pytest.FixtureRequest, adb_server: AdbServer) -> Iterator[list[StandInPhone]]:
    """A slow phone and a new one, connected."""
    with _phones(request, adb_server, A53, MAX) as phones:
        yield phones


@pytest.fixture
def three_phones(request: pytest.FixtureRequest, adb_server: AdbServer) -> Iterator[list[StandInPhone]]:
    """Three phones, connected: a masked round needs as many."""
    with _phones(request, adb_server, A53, A76, A76) as phones:
        yield phones
