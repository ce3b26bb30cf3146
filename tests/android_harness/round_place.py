"""A round without adb: phones that are folders of this machine, and a server on loopback."""

import contextlib
import json
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from phonograd.android_harness.errors import PhoneLostError, PhoneRunError
from phonograd.android_harness.phones.facts import Phone
from phonograd.android_harness.result import KeptAwake, PowerState, Pushed, PushedFile
from phonograd.android_harness.rounds.federated_round import run_round
from phonograd.android_harness.rounds.result import RoundReport
from phonograd.android_harness.rounds.settings import TEXT_ON_PHONE, RoundSettings
from phonograd.android_harness.rounds.tokens import ServerAccess
from phonograd.android_harness.session import PhoneSession
from phonograd.android_harness.session.program import SHARED_EXIT_CODES
from phonograd.device_runtime.base.errors import PhonogradError, StoppedError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.client.owner_file import with_owner_token
from phonograd.device_runtime.client.server_client import Connection
from phonograd.server_agg.listening import Listener
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.server import AggregationServer
from phonograd.server_agg.settings.masked import MaskedSettings
from phonograd.server_agg.settings.server import ServerSettings
from tests.server_agg.workshop import settings_with
from tests.support.phone_command import Place, text_of
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


def loss() -> PhoneLostError:
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
    """A server in a thread of the test. It can be stopped, and started again at the same address."""

    def __init__(self, place: Place, state: Path, settings: ServerSettings):
        self.url = f"http://127.0.0.1:{settings.port}"
        self._made_of = (place.artifacts, state, settings)
        self._running = contextlib.ExitStack()
        self.start()

    def start(self) -> None:
        coordinator = Coordinator(*self._made_of)
        with contextlib.ExitStack() as started:
            started.callback(coordinator.close)
            server = AggregationServer(coordinator, self._made_of[2], Listener(self._made_of[2]))
            started.enter_context(server.owner_file())
            thread = threading.Thread(target=server.run)
            thread.start()
            started.callback(thread.join, PATIENCE_SECONDS)
            started.callback(server.stop)
            self._running = started.pop_all()
        self.owner = with_owner_token(Connection(self.url))

    def stop(self) -> None:
        self._running.close()


@contextlib.contextmanager
def serving(place: Place, state: Path, **settings: object) -> Iterator[Serving]:
    with reserved_port() as port:
        server = Serving(place, state, settings_with(port=port, **settings))
        try:
            yield server
        finally:
            server.stop()


# Of a server of masked rounds for three phones.
MASKED = {"clients_per_round": 3, "weighting": "equal", "masked": MaskedSettings(cohort=3, min_cohort=3)}


@dataclass
class Bench:
    """All that a test of a round has at hand."""

    place: Place
    folder: Path
    phones: dict[str, FolderPhone]
    server: Serving
    progress: Callable[..., None] = lambda *_: None
    stop_signal: Callable[[], int] = lambda: 0
    attached: list[Phone] = field(default_factory=list)
    tokens: dict[str, str] | None = None
    token: str | None = None

    @property
    def updates(self) -> Path:
        return self.folder / "updates"

    def run(self, *, names: dict[str, str] | None = None, **settings: Any) -> RoundReport:
        settings = {"texts": self.folder / "texts", "wait_seconds": 0.0, "patience_seconds": 0.0, **settings}
        return run_round(
            ServerAccess(Connection(self.server.url, self.token), self.tokens),
            self.place.artifacts,
            self.place.command,
            self.folder / "cache",
            self.attached or ready(*self.phones),
            names or {},
            RoundSettings(updates=self.updates, **settings),
            lambda serial: FolderSession(self.phones[serial]),
            self.progress,
            lambda: contextlib.nullcontext(self.stop_signal),
        )

    def left_on_phones(self) -> list[set[str]]:
        return [phone.files() for phone in self.phones.values()]


def give_texts(folder: Path, *names: str) -> None:
    """Write a text for each phone to folder/texts."""
    (folder / "texts").mkdir()
    for seed, name in enumerate(names):
        (folder / "texts" / f"{name}.txt").write_bytes(text_of(seed, 200))
