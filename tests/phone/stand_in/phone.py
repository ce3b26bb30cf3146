"""A stand-in phone as a test sees it."""

import contextlib
import dataclasses
import json
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from .debs import StandInError, emulator, programs
from .link import Counters
from .spec import A76, PATIENCE_SECONDS, PhoneSpec
from .userland import STATE, cores

__all__ = ["StandInError", "StandInPhone"]

NAMESPACES = ("--user", "--map-root-user", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child")


class StandInPhone:
    """A phone that adb reaches at `serial`, from entering the context to its end; `boot` and `close` do the same.

    Its processes are in namespaces of their own and end with it, also when the test's process is killed.
    """

    def __init__(self, spec: PhoneSpec = A76, port: int = 0):
        self.spec = spec
        self.port = port
        self._pid = 0
        self._process: subprocess.Popen[str] | None = None
        self._turn = threading.Lock()
        self._closing = contextlib.ExitStack()

    def __enter__(self) -> "StandInPhone":
        self.boot()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def serial(self) -> str:
        """Name of the phone in adb's list after `adb connect`."""
        return f"127.0.0.1:{self.port}"

    @property
    def root(self) -> Path:
        """The phone's / as this machine sees it. An absolute link in it leads out of it."""
        return Path(f"/proc/{self._pid}/root")

    def boot(self) -> None:
        """Make the phone and wait until it listens. StandInError: what this machine lacks."""
        try:
            self._boot()
        except BaseException:
            self.close()
            raise

    def _boot(self) -> None:
        base = self._closing.enter_context(tempfile.TemporaryDirectory(prefix="stand-in-phone-"))
        settings = {
            "spec": dataclasses.asdict(self.spec),
            "programs": {name: str(path) for name, path in programs().items()},
            "emulator": str(emulator()),
            "base": base,
            "port": self.port,
        }
        package = Path(__file__).parent
        command = ["unshare", *NAMESPACES, sys.executable, "-m", f"{package.name}.device", json.dumps(settings)]
        log = self._closing.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace"))  # noqa: SIM115 - closed with the phone
        self._process = subprocess.Popen(
            command, cwd=package.parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )
        self._log = log
        answer = self._answer()
        self._pid, self.port = answer["pid"], answer["port"]

    def close(self) -> None:
        """End it and everything that runs on it."""
        if self._process is not None:
            assert self._process.stdin is not None and self._process.stdout is not None
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()  # and unshare's --kill-child ends the phone
                self._process.wait()
            self._process.stdout.close()
            self._process = None
        self._closing.close()

    # What goes on in it

    def processes(self) -> list[str]:
        """The command lines of what runs on it, adbd's own not among them."""
        found: list[str] = self._order("processes")
        return found

    def kill(self, part: str) -> None:
        """Kill every process whose command line has `part`, as Android does where memory is short."""
        self._order("kill", part=part)

    @property
    def counters(self) -> Counters:
        """Bytes of files pushed and pulled since it was made."""
        return Counters(**self._order("counters"))

    @property
    def boot_id(self) -> str:
        """Kernel's id of this boot."""
        return (self.root / "proc/sys/kernel/random/boot_id").read_text("ascii").strip()

    @property
    def fixed_performance(self) -> bool:
        """Whether somebody asked for fixed performance mode since it booted."""
        return (self.root / STATE / "fixed_performance_mode").read_text("ascii").strip() == "true"

    def fall_asleep(self) -> None:
        """Turn the screen off, doze, and turn battery saver on."""
        for name, value in (("wakefulness", "Asleep"), ("doze", "IDLE"), ("settings", "global.low_power=1")):
            _write(self.root / STATE / name, value)

    @property
    def rest(self) -> dict[str, str]:
        """What keeps it from work, by Android's names; doze: whether it is allowed to."""
        state = self.root / STATE
        kept = (state / "settings").read_text("ascii").split()
        names = (("wakefulness", "wakefulness"), ("doze_enabled", "doze"))
        return {
            **{name: (state / file).read_text("ascii").strip() for file, name in names},
            **dict(line.partition(".")[2].split("=") for line in kept),
        }

    def refuse_settings(self) -> None:
        """Let `settings` change nothing from now on, as on a Xiaomi without "USB debugging (Security settings)"."""
        _write(self.root / STATE / "settings_refused", 1)

    def hang_at(self, command: str) -> None:
        """Let that command of Android's hang from now on, until a reboot ends it."""
        _write(self.root / STATE / f"hang_at_{command}", 1)

    # The cable

    def unplug(self) -> None:
        """The cable is pulled: every connection breaks, and no new one is taken."""
        self._order("cable", order="unplug")

    def go_silent(self) -> None:
        """Connections stay and are taken, and nothing is ever answered."""
        self._order("talk", speaks=False)

    def speak(self) -> None:
        """Answer again."""
        self._order("talk", speaks=True)

    def drop_in_push(self, after_bytes: int) -> None:
        """Be unplugged when more than that many bytes of files have come, from now on."""
        self._order("drop_in_push", after_bytes=after_bytes)

    # The phone

    def authorise(self) -> None:
        """Somebody taps Allow: the host that asks is trusted from now on; if none does, the next that will."""
        self._order("cable", order="authorise")

    def reboot(self, seconds: float) -> None:
        """Everything ends at once; the phone is back, with its /data, after that many seconds."""
        self._order("reboot", seconds=seconds)

    def fill_storage(self, leave_bytes: int = 0) -> None:
        """Leave that many bytes free in /data, in whole pages."""
        self._order("fill_storage", leave_bytes=leave_bytes)

    def empty_storage(self) -> None:
        """/data has its whole size again; files stay."""
        self._order("empty_storage")

    def heat(self, celsius: float, status: int = 0) -> None:
        """Every thermal zone's and the battery's temperature, and Android's thermal status (0 none to 6 shutdown)."""
        for zone in (self.root / "sys/class/thermal").iterdir():
            _write(zone / "temp", round(celsius * 1000))
        _write(self.root / "sys/class/power_supply/battery/temp", round(celsius * 10))
        _write(self.root / STATE / "thermal_status", status)

    def set_frequency(self, core: int, khz: int) -> None:
        """A core's frequency and its cap, as a governor under heat sets them."""
        folder = self.root / f"sys/devices/system/cpu/cpu{core}/cpufreq"
        _write(folder / "scaling_cur_freq", khz)
        _write(folder / "scaling_max_freq", khz)

    def battery(self, percent: int, charging: bool = True) -> None:
        """The battery's charge, and whether the cable charges it."""
        folder = self.root / "sys/class/power_supply/battery"
        _write(folder / "capacity", percent)
        _write(folder / "status", "Charging" if charging else "Discharging")

    def cores(self) -> list[int]:
        """List the numbers of its cores, little ones first; they are this machine's."""
        return [core.number for core in cores(self.spec)]

    def _order(self, name: str, **arguments: Any) -> Any:
        with self._turn:
            if self._process is None or self._process.stdin is None:
                raise StandInError(f"the phone does not run: {name} cannot be done")
            try:
                self._process.stdin.write(json.dumps([name, arguments]) + "\n")
                self._process.stdin.flush()
            except OSError:
                pass  # it died; its last words are in the answer
            return self._answer()

    def _answer(self) -> Any:
        assert self._process is not None and self._process.stdout is not None
        overdue = threading.Timer(PATIENCE_SECONDS, self._process.kill)
        overdue.start()
        try:
            line = self._process.stdout.readline()
        finally:
            overdue.cancel()
        if not line:
            self._log.seek(0)
            words = self._log.read().strip() or "nothing"
            raise StandInError(
                f"the phone ended; it said: {words}\nIt needs user namespaces and a kernel of at least 6.7 "
                "(binfmt_misc of its own)"
            )
        answer = json.loads(line)
        if "error" in answer:
            raise StandInError(answer["error"])
        return answer["ok"]


def _write(path: Path, value: str | int) -> None:
    path.write_text(f"{value}\n", "ascii")
