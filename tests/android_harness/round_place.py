"""A round without adb: phones that are folders of this machine, and a real `phonograd serve`."""

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from phonograd.android_harness.errors import PhoneLostError, PhoneRunError
from phonograd.android_harness.phones.facts import Phone
from phonograd.android_harness.result import KeptAwake, PowerState, Pushed, PushedFile
from phonograd.android_harness.rounds.settings import TEXT_ON_PHONE
from phonograd.android_harness.session import PhoneSession
from phonograd.android_harness.session.program import SHARED_EXIT_CODES
from phonograd.device_runtime.base.errors import PhonogradError, StoppedError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.client.owner_file import with_owner_token
from phonograd.device_runtime.client.server_client import Connection
from tests.support.phone_command import Place
from tests.support.ports import reserved_port
from tests.support.waiting import PATIENCE_SECONDS

# A child that one thread forks inherits the program file that another thread is writing, and keeps it open until it
# executes: starting that program would then fail with ETXTBSY.
WRITING_OR_STARTING = threading.Lock()


@dataclass
class FolderPhone:
    """A folder that stands for a phone: the host's build of phonograd-phone runs in it.

    faults: raised when the session comes to `enter`, `push`, `train` (after its first step), `pull` or `leave`; hooks:
    called there.
    """

    folder: Path
    faults: dict[str, PhonogradError] = field(default_factory=dict)
    hooks: dict[str, Callable[[], None]] = field(default_factory=dict)
    keep: bool = False
    busy: bool = False
    pushed: list[str] = field(default_factory=list)
    pulled: list[str] = field(default_factory=list)

    def files(self) -> set[str]:
        """The files on it."""
        return {str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file()}

    def at(self, moment: str) -> None:
        if hook := self.hooks.pop(moment, None):
            hook()
        if fault := self.faults.get(moment):
            raise fault


class FolderSession(PhoneSession):
    """What a PhoneSession does, to a FolderPhone."""

    def __init__(self, phone: FolderPhone):
        self._phone = phone
        self._mine: list[str] = []

    def __enter__(self) -> "FolderSession":
        self._phone.at("enter")
        assert not self._phone.busy
        self._phone.busy = True
        (self._phone.folder / "run").mkdir()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._phone.busy = False
        shutil.rmtree(self._phone.folder / "run", ignore_errors=True)
        for name in [] if self._phone.keep else self._mine:
            (self._phone.folder / name).unlink(missing_ok=True)
        if error is None:
            self._phone.at("leave")

    def power_states(self, keep_awake: bool) -> tuple[PowerState, PowerState, KeptAwake]:
        return PowerState(not keep_awake, None, None), PowerState(keep_awake, None, None), KeptAwake((), ("low_power",))

    def transient(self, name: str) -> str:
        return f"run/{name}"

    def sync(self, files: Mapping[str, Path], progress: Callable[[int, int, str], None] | None = None) -> Pushed:
        self._phone.at("push")
        entries = []
        for name, path in files.items():
            there, digest = self._phone.folder / name, sha256_of_file(path)
            lacking = not there.is_file() or sha256_of_file(there) != digest
            if lacking:
                there.parent.mkdir(parents=True, exist_ok=True)
                with WRITING_OR_STARTING:
                    shutil.copy(path, there)
                self._phone.pushed.append(name)
            entries.append(PushedFile(name, path.stat().st_size, digest, lacking))
            self._mine.append(name)
            if progress:
                progress(len(entries), len(files), name)
        return Pushed(tuple(entries), sum(entry.nbytes for entry in entries if entry.pushed), 0.1)

    def run(
        self,
        arguments: Sequence[str],
        on_event: Callable[[float, dict[str, Any]], None],
        stop: threading.Event,
    ) -> float:
        here = str(self._phone.folder / "user.txt")
        line = [str(self._phone.folder / "phonograd-phone"), *arguments]
        line = [here if part == TEXT_ON_PHONE else part for part in line]
        with WRITING_OR_STARTING:
            process = subprocess.Popen(
                line, cwd=self._phone.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        with process:
            assert process.stdout is not None
            assert process.stderr is not None
            try:
                for text in process.stdout:
                    event = json.loads(text)
                    on_event(0.0, event)
                    if event["event"] == "step":
                        self._phone.at("train")
                    if stop.is_set():
                        raise StoppedError("phonograd-phone train: stopped", signal.SIGINT)
            except BaseException:
                process.kill()
                raise
            err = process.stderr.read()
        if process.returncode:
            raise PhoneRunError(err.strip(), process.returncode if process.returncode in SHARED_EXIT_CODES else None)
        return 0.5

    def pull(self, name: str, local: Path, sha256: str | None) -> None:
        self._phone.at("pull")
        self._phone.pulled.append(name)
        shutil.copy(self._phone.folder / name, local)
        assert sha256 in (None, sha256_of_file(local))


def lost() -> PhoneLostError:
    return PhoneLostError("phone p2: disconnected while phonograd-phone train ran (cable pulled, or switched off)")


def desk(folder: Path, *serials: str) -> dict[str, FolderPhone]:
    """Phones by serial."""
    phones = {serial: FolderPhone(folder / f"phone-{index}") for index, serial in enumerate(serials)}
    for phone in phones.values():
        phone.folder.mkdir()
    return phones


def ready(*serials: str) -> list[Phone]:
    return [Phone(serial, "device", None) for serial in serials]


class Serving:
    """`phonograd serve` in a separate process that can be killed and restarted."""

    def __init__(self, place: Place, state: Path, port: int, *options: object):
        self.url = f"http://127.0.0.1:{port}"
        line = [sys.executable, "-m", "phonograd", "serve", "--artifacts", place.artifacts.folder, "--state", state]
        self._line = [*map(str, line), *map(str, options), "--port", str(port), "--json", "--quiet"]
        self._process: subprocess.Popen[str] | None = None
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self._process.stdout is not None
        assert json.loads(self._process.stdout.readline())["url"] == self.url
        self.owner = with_owner_token(Connection(self.url))

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate(timeout=PATIENCE_SECONDS)
            self._process = None


@contextlib.contextmanager
def serving(place: Place, state: Path, *options: object) -> Iterator[Serving]:
    with reserved_port() as port:
        server = Serving(place, state, port, *options)
        try:
            yield server
        finally:
            server.kill()
