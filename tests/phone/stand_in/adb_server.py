"""An adb server for tests alone: on a free port, with its own folder of keys, ended for sure."""

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from .debs import StandInError
from .phone import StandInPhone
from .spec import PATIENCE_SECONDS

# Only phones that are connected to: no search on the network, for emulators, or on USB, where adb 36 waits for 3 s.
SECLUDED = {"ADB_MDNS": "0", "ADB_MDNS_AUTO_CONNECT": "0", "ADB_EMU": "0", "ADB_USB": "0", "ADB_LIBUSB": "0"}

PORT = "ANDROID_ADB_SERVER_PORT"
PORTS_TRIED = 5  # somebody else may take a free one first


class AdbServer:
    """A server of the given adb, from entering the context to its end; nobody else's server or keys are touched.

    `environment` is what a process needs to talk to it: any adb client of the same version started with it does.
    """

    def __init__(self, adb: Path):
        self.adb = adb
        self.port = 0
        self.environment: dict[str, str] = {}
        self._home = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self._closing = contextlib.ExitStack()

    def __enter__(self) -> "AdbServer":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.kill()
        finally:
            self._closing.close()

    @property
    def is_running(self) -> bool:
        """Whether the server process that was started last is still alive."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it and wait until it answers; after `kill`, on the same port with the same keys.

        StandInError: it does not start.
        """
        for _ in range(1 if self.environment else PORTS_TRIED):
            if not self.environment:
                self._settle()
            if self._starts():
                return
            words = (self._home / "server.log").read_text("utf-8", "replace").strip()
            self.environment = {}
        raise StandInError(f"{self.adb} does not start a server: {words or 'it says nothing'}")

    def kill(self) -> None:
        """End it, and one that a client started in its place since."""
        if self._listens():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.run("kill-server", timeout=5)
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        for pid in self._processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def reset(self) -> None:
        """Disconnect every phone, and restart the server if it has ended. Raises StandInError."""
        if not self.is_running:
            self.kill()
            self.start()
            return
        self.run("disconnect")
        _until(lambda: not self._states(), "a phone stays in adb's list")

    def run(self, *arguments: str, timeout: float = PATIENCE_SECONDS) -> subprocess.CompletedProcess[str]:
        """Run this adb's client; its output as text. After `kill-server` the server has ended, not just heard of it."""
        done = subprocess.run(
            [self.adb, *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        if "kill-server" in arguments and self._process is not None:
            self._process.wait(timeout)
        return done

    def state(self, serial: str) -> str:
        """What `adb devices` says of it; "absent" if nothing."""
        return self._states().get(serial, "absent")

    def connect(self, phone: StandInPhone, expected: str = "device") -> None:
        """Connect to the phone and wait until its state is the expected one. StandInError: it never was."""

        def is_reached() -> bool:
            if self.state(phone.serial) != expected:
                self.run("connect", phone.serial)  # again, where it was booting
            return self.state(phone.serial) == expected

        _until(is_reached, f"{phone.serial} does not become {expected}")

    def disconnect(self, phone: StandInPhone) -> None:
        """Forget the phone."""
        self.run("disconnect", phone.serial)

    def wait_for(self, phone: StandInPhone, expected: str) -> None:
        """Wait until the phone's state is the expected one. StandInError: it never was."""
        _until(lambda: self.state(phone.serial) == expected, f"{phone.serial} does not become {expected}")

    def _states(self) -> dict[str, str]:
        """The states of phones by serial, as `adb devices` lists them."""
        lines = self.run("devices").stdout.partition("List of devices attached\n")[2].splitlines()
        found = (line.partition("\t") for line in lines if line.strip())
        return {serial: state.strip() for serial, _, state in found}

    def _settle(self) -> None:
        """Take a folder and a port that was free just now."""
        self._home = Path(self._closing.enter_context(tempfile.TemporaryDirectory(prefix="stand-in-adb-")))
        self.port = _free_port()
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("ADB_", "ANDROID_ADB_"))}
        home = {"HOME": str(self._home), "TMPDIR": str(self._home)}
        self.environment = {**kept, **home, **SECLUDED, PORT: str(self.port)}

    def _starts(self) -> bool:
        with (self._home / "server.log").open("ab") as log:
            self._process = process = subprocess.Popen(
                [self.adb, "-P", str(self.port), "nodaemon", "server"],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        _until(lambda: self._listens() or process.poll() is not None, f"{self.adb} starts no server")
        return process.poll() is None

    def _processes(self) -> list[int]:
        """Processes of any adb that were started for this server's port."""
        mark = f"{PORT}={self.port}".encode()
        found = []
        for folder in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if folder.name.isdigit() and (folder / "exe").readlink().name == "adb":
                    found += [int(folder.name)] * (mark in (folder / "environ").read_bytes().split(b"\0"))
        return found

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _until(is_reached: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not is_reached():
        if time.monotonic() > end:
            raise StandInError(what)
        time.sleep(0.02)
