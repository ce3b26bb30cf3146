"""A session: exclusive use of one phone."""

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
from phonograd.android_harness.adb.states import ONLINE
from phonograd.android_harness.errors import (
    AdbError,
    PhoneLostError,
    PhoneRunError,
    PhoneTimeoutError,
    WatchdogEndedError,
)
from phonograd.android_harness.result import KeptAwake, PowerState, Pushed, Sample
from phonograd.android_harness.session import file_sync
from phonograd.android_harness.session.power_state import read_power_states
from phonograd.android_harness.session.program import Event, PhoneProgram
from phonograd.android_harness.session.sampling import sample_periodically, take_sample
from phonograd.android_harness.session.settings import TRANSIENT_FOLDER, SessionSettings
from phonograd.android_harness.session.watchdog import Watchdog, phone_script
from phonograd.device_runtime.base.errors import PhonogradError
from phonograd.device_runtime.base.files import sha256_of_file

BOOT_ID = "cat /proc/sys/kernel/random/boot_id 2>/dev/null || getprop ro.boottime.init"
POLL_SECONDS = 0.5

_WORDS = {"undo": "settings that it changed", "run": "its texts", "lock": "its lock"}

# Android's answers where it has no such mode.
REFUSALS = ("fail", "unknown", "unsupported", "error", "exception", "not found", "usage")


class PhoneSession:
    """Exclusive use of one phone while the context lasts; for one thread, except the callback of `sample_periodically`.

    Entering raises PhoneBusyError, PhoneStorageError or PhoneLostError. However a session ends, even by a pulled cable,
    programs are ended, settings restored, and the lock and the files under run/ removed. Pushed files stay only with
    `settings.keep_files`, or if the phone was lost. All methods raise PhoneLostError, which says what happened to the
    phone.
    """

    def __init__(self, adb: Adb, serial: str, settings: SessionSettings | None = None):
        self.adb, self.serial = adb, serial
        self.settings = settings or SessionSettings()
        self.keep_files = self.settings.keep_files
        self.folder = self.settings.folder
        self._nonce = secrets.token_hex(8)
        self._watchdog: Watchdog | None = None
        self._began = 0.0

    def __enter__(self) -> "PhoneSession":
        with self._diagnose("taking its lock"):
            self._watchdog = Watchdog(self.adb, self.serial, self.settings, self._nonce)
        self._began = time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._watchdog is not None
        watchdog, self._watchdog = self._watchdog, None
        if isinstance(error, PhoneLostError | AdbError):
            watchdog.abandon()
            if isinstance(error, WatchdogEndedError):
                self._clean_up()
            return
        try:
            watchdog.end(self.keep_files)
        except (PhoneLostError, AdbError) as loss:
            if isinstance(loss, WatchdogEndedError):
                self._clean_up()
            if error is None:
                raise

    @property
    def found_leftovers(self) -> bool:
        """Whether there were leftovers of an aborted run on entering; they have been removed."""
        assert self._watchdog is not None
        return self._watchdog.found_leftovers

    @property
    def at_s(self) -> float:
        """Seconds since the session began, by this machine's clock."""
        return time.monotonic() - self._began

    def path(self, name: str) -> str:
        """The path on the phone of a name under the work folder."""
        return f"{self.folder}/{name}"

    def transient(self, name: str) -> str:
        """The name, relative to the work folder, of a file that is removed when the session ends."""
        return f"{TRANSIENT_FOLDER}/{name}"

    def sync(self, files: Mapping[str, Path], progress: file_sync.Progress | None = None) -> Pushed:
        """Push the files that the work folder does not have yet; raises as `file_sync.sync_files`."""
        with self._diagnose("files were pushed"):
            return file_sync.sync_files(self.adb, self.serial, self.folder, files, progress)

    def run(
        self,
        arguments: Sequence[str],
        on_event: Callable[[float, Event], None],
        stop: threading.Event,
    ) -> float:
        """Run phonograd-phone in the work folder; call `on_event` with `at_s` and each event.

        Returns wall seconds. Raises WatchdogEndedError if the watchdog ends first, PhoneRunError, StoppedError once
        `stop` is set.
        """
        assert self._watchdog is not None
        began, doing = time.monotonic(), f"phonograd-phone {arguments[0]} ran"
        check_watchdog = functools.partial(self._watchdog.check, doing)
        with (
            self._diagnose(doing),
            contextlib.closing(PhoneProgram(self.adb, self.serial, self.folder, arguments)) as program,
        ):
            for event in program.events(stop, self.settings.timeout_seconds, check_watchdog):
                on_event(self.at_s, event)
        return time.monotonic() - began

    def sample(self) -> Sample:
        """Clocks, temperatures and power now."""
        with self._diagnose("its temperature was read"):
            return take_sample(self.adb, self.serial, self.at_s, self.settings.timeout_seconds)

    def sample_periodically(
        self, on_sample: Callable[[Sample], None], interval: float
    ) -> contextlib.AbstractContextManager[None]:
        """Sample every `interval` seconds while the context lasts; `on_sample` is called from a separate thread.

        It does not raise if the phone is lost: whatever runs meanwhile does.
        """
        alive_path = self.path(TRANSIENT_FOLDER)
        return sample_periodically(self.adb, self.serial, alive_path, interval, on_sample, lambda: self.at_s)

    def power_states(self, keep_awake: bool) -> tuple[PowerState, PowerState, KeptAwake]:
        """The state of screen, doze and battery saver now, and after keeping the phone awake if `keep_awake`.

        Keeping it awake turns the screen on, also on battery, and the others off, as far as Android allows; the second
        state shows how far, the third value what was changed. The session's end undoes it.
        """
        with self._diagnose("its screen and battery saver were read"):
            return read_power_states(self.adb, self.serial, self.folder, keep_awake)

    def fixed_performance(self) -> bool:
        """Ask Android (11 and later) to hold clocks at a sustainable level; undone when the session ends."""
        undo = shlex.quote(self.path("undo"))
        mode = "cmd power set-fixed-performance-mode-enabled"
        with self._diagnose("its performance mode was set"):
            done = self.adb.shell(self.serial, f"umask 077; echo '{mode} false' >>{undo} && {mode} true 2>&1")
        refused = any(word in done.out.lower() for word in REFUSALS)
        return done.status == 0 and not refused

    def pull(self, name: str, local: Path, sha256: str | None) -> None:
        """Fetch a file of the work folder. Raises PhoneRunError if its hex SHA-256 differs, StorageError.

        sha256: None for a file with a checksum of its own, which its reader checks.
        """
        with self._diagnose(f"{name} was pulled"):
            self.adb.pull(self.serial, self.path(name), local)
        if sha256 is None:
            return
        pulled = sha256_of_file(local)
        if pulled != sha256:
            local.unlink()
            raise PhoneRunError(
                f"phone {self.serial}: {name}: SHA-256 is {sha256[:12]}… on the phone and {pulled[:12]}… here; the "
                "cable is bad, or the file changed meanwhile: run again"
            )

    def _clean_up(self) -> None:
        """Clean up after a watchdog that was killed, by starting and ending another one."""
        with contextlib.suppress(PhonogradError):
            Watchdog(self.adb, self.serial, self.settings, secrets.token_hex(8)).end(self.keep_files)

    @contextlib.contextmanager
    def _diagnose(self, doing: str) -> Iterator[None]:
        try:
            if self._watchdog:
                self._watchdog.check(doing)
            yield
        except (PhoneLostError, AdbError) as loss:
            boot = self._watchdog.boot if self._watchdog else None
            raise diagnose_loss(self.adb, self.serial, boot, doing, self.settings.reconnect_seconds, loss) from loss


def find_leftovers(adb: Adb, serial: str) -> tuple[str, ...]:
    """What an earlier session left, in words; empty if nothing, while a session holds the phone, or if it is lost."""
    folder, names = SessionSettings().folder, list[str]()
    with contextlib.suppress(PhoneLostError):
        names = adb.shell(serial, phone_script("lock.sh", "leftovers.sh", folder=folder)).out.split()
    return tuple(words for name, words in _WORDS.items() if name in names)


def restore_phone(adb: Adb, serial: str) -> None:
    """Restore the settings that an earlier session changed, and remove all files of sessions, kept ones too.

    Raises PhoneBusyError while a session holds the phone, PhoneStorageError, PhoneLostError.
    """
    Watchdog(adb, serial, SessionSettings(), secrets.token_hex(8)).end(keep=False)


def diagnose_loss(
    adb: Adb, serial: str, boot: str | None, doing: str, wait: float, loss: PhoneLostError | AdbError
) -> PhoneLostError | AdbError:
    """The error to report: wait up to `wait` seconds for the phone to come back, then ask it whether it rebooted.

    While adb's server is being restarted adb has none for a while; that is the error only if it still has none at the
    end.
    """
    deadline = time.monotonic() + wait
    while (state := _state(adb, serial)) != ONLINE and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    if isinstance(state, AdbError):
        return state
    if state != ONLINE:
        return PhoneLostError(
            f"phone {serial}: disconnected while {doing} (cable pulled, switched off, or out of reach; adb's state: "
            f"{state}); reconnect it and run again; programs on it end by themselves"
        )
    try:
        now = adb.shell(serial, BOOT_ID, timeout=wait).out.strip()
    except PhonogradError:
        now = ""
    if now and boot and now != boot:
        return PhoneLostError(
            f"phone {serial}: rebooted while {doing}; its work is lost, and its settings stay changed until the next "
            "run or phonograd devices --restore: run again"
        )
    if not now or boot is None or isinstance(loss, PhoneTimeoutError | WatchdogEndedError):
        return loss
    return PhoneLostError(
        f"phone {serial}: the connection was lost while {doing}, and is back (a loose cable, or adb's server "
        "restarted); run again"
    )


def _state(adb: Adb, serial: str) -> str | AdbError:
    try:
        return adb.state(serial)
    except AdbError as error:
        return error
