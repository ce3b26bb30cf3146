"""A fake phone and session for tests of timing: no adb, its own clock, and faults that the test chooses."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from phonograd.android_harness.errors import PhoneLostError
from phonograd.android_harness.phones.facts import Battery, Cluster, Core, Phone, PhoneFacts, Power
from phonograd.android_harness.result import KeptAwake, PowerState, Pushed, PushedFile, Sample
from phonograd.device_runtime.base.errors import StoppedError
from phonograd.device_runtime.base.files import sha256_of_file
from tests.android_harness.reports import facts

BIG, LITTLE = (4, 5, 6, 7), (0, 1, 2, 3)
BIG_KHZ, LITTLE_KHZ = 2_314_000, 1_800_000
STEP_SECONDS = 2.0
ASLEEP, AWAKE = PowerState(False, True, True), PowerState(True, False, False)
STEPS = 6


def parse_facts(serial: str = "PHONE1", **changes: Any) -> PhoneFacts:
    """A phone of 4 + 4 cores, cool and charged."""
    cores = tuple(Core(n, BIG_KHZ if n in BIG else LITTLE_KHZ, None, None) for n in range(8))
    values: dict[str, Any] = {
        "cores": cores,
        "clusters": (Cluster(LITTLE, LITTLE_KHZ, None), Cluster(BIG, BIG_KHZ, None)),
        "battery": Battery(80, 25.0, False),
        "temperature_c": 30.0,
    }
    return replace(facts(serial, "Test Phone"), **(values | changes))


def phone_of(serial: str = "PHONE1", **changes: Any) -> Phone:
    """The phone in adb's list."""
    return Phone(serial, "device", parse_facts(serial, **changes))


def sample_at(at_s: float, celsius: float | None = 30.0, **changes: Any) -> Sample:
    """A sample of a phone that is not throttled."""
    khz = {n: BIG_KHZ if n in BIG else LITTLE_KHZ for n in range(8)}
    values: dict[str, Any] = {
        "at_s": at_s,
        "frequencies_khz": khz,
        "caps_khz": khz,
        "temperatures_c": {} if celsius is None else {"CPU0": celsius, "battery": 25.0},
        "battery_percent": 80,
        "battery_temperature_c": 25.0,
        "thermal_status": 0,
        "power": Power(None, None, None, True),
    }
    return Sample(**(values | changes))


@dataclass
class FakePhone:
    """What a phone does in its session. `celsius` is asked at each sample with the seconds since the session began."""

    serial: str = "PHONE1"
    celsius: Callable[[float], float] = lambda at_s: 30.0
    changes: Callable[[float], Mapping[str, Any]] = lambda at_s: {}  # to a sample, by seconds
    steps_seconds: Sequence[float] = (STEP_SECONDS,) * STEPS
    lost_in_epoch: int | None = None  # counted from 1, warm-up and all; lost in the middle of it
    bug_in_sync: bool = False
    refuses: Exception | None = None  # when the session is entered
    at_step: Callable[[int, int], None] = lambda epoch, step: None
    ran: list[list[str]] = field(default_factory=list)
    left: int = 0  # how often a session ended
    offers_fixed_performance: bool = True
    cores: Sequence[int] = BIG  # what the phone's program says it runs on, a thread on each
    heartbeat_timeout: float | None = None  # of its session's settings


class FakeSession:
    """A PhoneSession of a FakePhone."""

    def __init__(self, phone: FakePhone, keep: bool = False):
        self.phone, self.keep, self.at_s = phone, keep, 0.0
        self.on_sample: Callable[[Sample], None] | None = None

    def __enter__(self) -> "FakeSession":
        if self.phone.refuses:
            raise self.phone.refuses
        return self

    def __exit__(self, *_: object) -> None:
        self.phone.left += 1

    def sample(self) -> Sample:
        return sample_at(self.at_s, self.phone.celsius(self.at_s), **self.phone.changes(self.at_s))

    def sync(self, files: Mapping[str, Path], progress: Callable[[int, int, str], None] | None = None) -> Pushed:
        if self.phone.bug_in_sync:
            raise KeyError("a bug")
        pushed = []
        for name, path in files.items():
            assert progress is not None
            progress(len(pushed), len(files), name)
            pushed.append(PushedFile(name, path.stat().st_size, sha256_of_file(path), True))
        return Pushed(tuple(pushed), sum(file.nbytes for file in pushed), 1.0)

    def power_states(self, keep_awake: bool) -> tuple[PowerState, PowerState, KeptAwake]:
        return ASLEEP, AWAKE if keep_awake else ASLEEP, KeptAwake((), ())

    def fixed_performance(self) -> bool:
        return self.phone.offers_fixed_performance

    @contextlib.contextmanager
    def sample_periodically(self, on_sample: Callable[[Sample], None], interval: float) -> Iterator[None]:
        self.on_sample = on_sample
        yield
        self.on_sample = None

    def run(
        self,
        arguments: Sequence[str],
        on_event: Callable[[float, dict[str, Any]], None],
        stop: threading.Event,
    ) -> float:
        phone, began = self.phone, self.at_s
        if arguments[0] == "info":
            on_event(began, {"event": "info", "choices": {"all": (*BIG, *LITTLE), "big": BIG, "little": LITTLE}})
            return 0.0
        phone.ran.append(list(arguments))
        assert self.on_sample is not None
        self.at_s += 1.0
        on_event(self.at_s, start_event(0.5, phone.cores, "--pin-threads" in arguments, "--output-sample" in arguments))
        for number, seconds in enumerate(phone.steps_seconds, 1):
            if stop.is_set():
                raise StoppedError("stopped", 2)
            if phone.lost_in_epoch == len(phone.ran) and number > len(phone.steps_seconds) // 2:
                raise PhoneLostError(f"phone {phone.serial}: disconnected")
            for _ in range(4):
                self.at_s += seconds / 4
                self.on_sample(self.sample())
            on_event(self.at_s, step_event(number, len(phone.steps_seconds), seconds))
            phone.at_step(len(phone.ran), number)
        report = report_event(sum(phone.steps_seconds))
        if "--codec-costs" in arguments:
            report["codecs"] = [{"codec": "rows-f32", "nbytes": 1000, "seconds": 0.1}]
        on_event(self.at_s, report)
        return self.at_s - began


def start_event(
    load_seconds: float, cores: Sequence[int] = BIG, pinned: bool = True, sampled: bool = False
) -> dict[str, Any]:
    return {
        "event": "start",
        "load_seconds": load_seconds,
        "kernels": "neon",
        "threads": len(cores),
        "pinned": pinned,
        "cores": list(cores),
        "allowed_cores": list(range(8)),
        "output_layer": {"kind": "sampled", "words": 12} if sampled else {"kind": "full", "words": 50},
    }


def step_event(step: int, steps: int, seconds: float) -> dict[str, Any]:
    phases = {"lstm": seconds / 2, "output": seconds / 2}
    return {"event": "step", "step": step, "steps": steps, "loss": 5.0 / step, "seconds": seconds, "phases": phases}


def report_event(seconds: float) -> dict[str, Any]:
    return {
        "event": "report",
        "seconds": seconds,
        "tokens": 4000,
        "loss_first": 5.0,
        "loss_last": 1.0,
        "peak_rss_bytes": 100 << 20,
        "kernels": "neon",
    }


class FakeStop(threading.Event):
    """A stop event whose waiting moves a fake session's clock instead of taking time."""

    def __init__(self, session: FakeSession):
        super().__init__()
        self.session = session

    def wait(self, timeout: float | None = None) -> bool:
        self.session.at_s += timeout or 0.0
        return self.is_set()
