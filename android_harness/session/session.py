"""A phone while it is ours."""

import contextlib
import functools
import secrets
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from phonograd.android_harness.adb.client import Adb
from phonograd.android_harness.errors import AdbError, KeeperEndedError, PhoneLostError, PhoneRunError
from phonograd.android_harness.result import PowerState, Pushed, Sample
from phonograd.android_harness.session import syncing
from phonograd.android_harness.session.keeper import Keeper
from phonograd.android_harness.session.losses import explained
from phonograd.android_harness.session.programs import Event, Program
from phonograd.android_harness.session.sampling import sample_now, watching
from phonograd.android_harness.session.settings import TRANSIENT, SessionSettings
from phonograd.android_harness.session.waking import read_power
from phonograd.device_runtime.base.errors import PhonogradError
from phonograd.device_runtime.base.files import sha256_of_file

# What Android answers where it has no such mode.
REFUSALS = ("fail", "unknown", "unsupported", "error", "exception", "not found", "usage")


class PhoneSession:
    """Exclusive use of one phone from entering to leaving the context; from one thread, but for `watch`.

    Entering raises PhoneBusyError, PhoneStorageError or PhoneLostError. Whatever ends a session, a pulled cable too,
    programs end, settings go back and the lock goes away; what was pushed stays only with `settings.keep`, or where the
    phone was lost. Files under run/ never stay. All methods raise PhoneLostError, which says what became of the phone.
    """

    def __init__(self, adb: Adb, serial: str, settings: SessionSettings | None = None):
        self.adb, self.serial = adb, serial
        self.settings = settings or SessionSettings()
        self.keep = self.settings.keep
        self.folder = self.settings.folder
        self._nonce = secrets.token_hex(8)
        self._keeper: Keeper | None = None
        self._began = 0.0

    def __enter__(self) -> "PhoneSession":
        with self._losses("taking its lock"):
            self._keeper = Keeper(self.adb, self.serial, self.settings, self._nonce)
        self._began = time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._keeper is not None
        keeper, self._keeper = self._keeper, None
        if isinstance(error, PhoneLostError | AdbError):
            keeper.abandon()
            if isinstance(error, KeeperEndedError):
                self._clean_up()
            return
        try:
            keeper.end(self.keep)
        except (PhoneLostError, AdbError) as loss:
            if isinstance(loss, KeeperEndedError):
                self._clean_up()
            if error is None:
                raise

    @property
    def found_leftovers(self) -> bool:
        """Whether an aborted run was cleaned up after on entering."""
        assert self._keeper is not None
        return self._keeper.found_leftovers

    @property
    def at_s(self) -> float:
        """Seconds since the session began, by this machine's clock."""
        return time.monotonic() - self._began

    def path(self, name: str) -> str:
        """The path on the phone of a name under the work folder."""
        return f"{self.folder}/{name}"

    def transient(self, name: str) -> str:
        """The name, relative to the work folder, of a file that is gone when the session ends."""
        return f"{TRANSIENT}/{name}"

    def sync(self, files: Mapping[str, Path], progress: syncing.Progress | None = None) -> Pushed:
        """Have these files under the work folder, pushing only what it lacks; raises as `syncing.sync`."""
        with self._losses("files were pushed"):
            return syncing.sync(self.adb, self.serial, self.folder, files, progress)

    def run(
        self,
        arguments: Sequence[str],
        on_event: Callable[[float, Event], None],
        stop: threading.Event,
    ) -> float:
        """Run phonograd-phone in the work folder; `on_event` is called with `at_s` and each event.

        Returns wall seconds. Raises KeeperEndedError if the phone's keeper ends first, PhoneRunError, StoppedError once
        `stop` is set.
        """
        assert self._keeper is not None
        began, doing = time.monotonic(), f"phonograd-phone {arguments[0]} ran"
        check_keeper = functools.partial(self._keeper.check, doing)
        with (
            self._losses(doing),
            contextlib.closing(Program(self.adb, self.serial, self.folder, arguments)) as program,
        ):
            for event in program.events(stop, self.settings.silence, check_keeper):
                on_event(self.at_s, event)
        return time.monotonic() - began

    def sample(self) -> Sample:
        """Clocks and temperatures of this moment."""
        with self._losses("its temperature was read"):
            return sample_now(self.adb, self.serial, self.at_s, self.settings.silence)

    def watch(self, on_sample: Callable[[Sample], None], interval: float) -> contextlib.AbstractContextManager[None]:
        """Sample every `interval` seconds while the context lasts; `on_sample` is called from a thread of its own.

        That the phone is lost is not said here: what runs beside it says so.
        """
        alive = self.path(TRANSIENT)
        return watching(self.adb, self.serial, alive, interval, on_sample, lambda: self.at_s)

    def power_states(self, hold: bool) -> tuple[PowerState, PowerState]:
        """Screen, doze and battery saver as they are, and then; `hold` has the screen on and the others off in between.

        As they were when the session ends, and only where Android allows it: the second state says what came of it.
        """
        with self._losses("its screen and battery saver were read"):
            return read_power(self.adb, self.serial, self.folder, hold)

    def fixed_performance(self) -> bool:
        """Ask Android (11 and later) to keep clocks at a level it can sustain; undone when the session ends."""
        undo = shlex.quote(self.path("undo"))
        mode = "cmd power set-fixed-performance-mode-enabled"
        with self._losses("its performance mode was set"):
            done = self.adb.shell(self.serial, f"umask 077; echo '{mode} false' >>{undo} && {mode} true 2>&1")
        refused = any(word in done.out.lower() for word in REFUSALS)
        return done.status == 0 and not refused

    def pull(self, name: str, local: Path, sha256: str) -> None:
        """Fetch a file of the work folder. Raises PhoneRunError if it has not that hex SHA-256, StorageError."""
        with self._losses(f"{name} was pulled"):
            self.adb.pull(self.serial, self.path(name), local)
        found = sha256_of_file(local)
        if found != sha256:
            local.unlink()
            raise PhoneRunError(
                f"phone {self.serial}: {name}: SHA-256 {sha256[:12]}… written there, {found[:12]}… arrived; the cable "
                "is bad, or the file changed meanwhile: run again"
            )

    def _clean_up(self) -> None:
        """A keeper that was killed undid nothing: another one does, unless it is still at that, or nobody can."""
        with contextlib.suppress(PhonogradError):
            Keeper(self.adb, self.serial, self.settings, secrets.token_hex(8)).end(self.keep)

    @contextlib.contextmanager
    def _losses(self, doing: str) -> Iterator[None]:
        try:
            if self._keeper:
                self._keeper.check(doing)
            yield
        except (PhoneLostError, AdbError) as loss:
            boot = self._keeper.boot if self._keeper else None
            raise explained(self.adb, self.serial, boot, doing, self.settings.reappear, loss) from loss
