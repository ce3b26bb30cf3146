"""Samples of a phone's clocks, caps, temperatures and battery, taken during a measurement."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence

from phonograd.android_harness.adb.client import Adb
from phonograd.android_harness.adb.process import PhoneProcess
from phonograd.android_harness.errors import PhoneLostError, PhoneTimeoutError
from phonograd.android_harness.phones.power import (
    parse_battery,
    parse_hal_temperatures,
    parse_power,
    parse_thermal_status,
    parse_zones,
)
from phonograd.android_harness.result import Sample
from phonograd.android_harness.session.watchdog import phone_script

# A query of the battery service takes tens of milliseconds of CPU time: too much for every sample.
SERVICES_EVERY_SECONDS = 5.0
LISTEN_SECONDS = 0.25
# dumpsys may be running.
ENDING_SECONDS = 5.0


def take_sample(adb: Adb, serial: str, at_s: float, timeout: float) -> Sample:
    """Take one sample, within `timeout` seconds. Raises PhoneLostError."""
    script = phone_script("sampler.sh", interval=0, every=1, rounds=1, alive_path="/")
    done = adb.shell(serial, script, timeout=timeout)
    return parse_sample(at_s, done.out.splitlines())


@contextlib.contextmanager
def sample_periodically(
    adb: Adb,
    serial: str,
    alive_path: str,
    interval: float,
    on_sample: Callable[[Sample], None],
    clock: Callable[[], float],
) -> Iterator[None]:
    """Call `on_sample` every `interval` seconds, from a separate thread, until the block ends.

    Sampling on the phone also ends when `alive_path`, a path there, no longer exists.
    """
    every = max(1, round(SERVICES_EVERY_SECONDS / interval))
    script = phone_script("sampler.sh", interval=interval, every=every, rounds=-1, alive_path=alive_path)
    with adb.start(serial, script) as process:
        ended = threading.Event()
        listener = threading.Thread(
            target=_listen, args=(process, ended, on_sample, clock), name=f"samples of {serial}", daemon=True
        )
        listener.start()
        try:
            yield
        finally:
            process.close()  # the end of stdin ends the script
            listener.join(ENDING_SECONDS)
            ended.set()
            process.kill()
            listener.join()


def _listen(
    process: PhoneProcess, ended: threading.Event, on_sample: Callable[[Sample], None], clock: Callable[[], float]
) -> None:
    lines: list[str] = []
    with contextlib.suppress(PhoneLostError):  # the measured program reports that
        while not ended.is_set():
            try:
                line = process.read_line(LISTEN_SECONDS)
            except PhoneTimeoutError:
                continue
            if line is None:
                return
            lines.append(line)
            if line == "end":
                on_sample(parse_sample(clock(), lines))
                lines = []


def parse_sample(at_s: float, lines: Sequence[str]) -> Sample:
    """Parse the output of on_phone/sampler.sh from `sample` to `end`; missing and malformed values are left out."""
    frequencies: dict[int, int] = {}
    caps: dict[int, int] = {}
    zones: list[str] = []
    power: list[str] = []
    services: dict[str, list[str]] = {"battery": [], "thermalservice": []}
    section: list[str] | None = None
    for line in lines:
        match line.split(maxsplit=2):
            case [("battery" | "thermalservice") as name]:
                section = services[name]
            case ["end"]:
                section = None
            case _ if section is not None:
                section.append(line)
            case ["core", number, rest] if number.isdecimal():
                now, _, cap = rest.partition(" ")
                if now.isdecimal():
                    frequencies[int(number)] = int(now)
                if cap.isdecimal():
                    caps[int(number)] = int(cap)
            case ["power", *words]:
                power = " ".join(words).split()
            case ["zone", *words]:
                zones.append(" ".join(words))
    said, thermal = ("\n".join(lines) for lines in services.values())
    battery = parse_battery(said)
    return Sample(
        at_s=at_s,
        frequencies_khz=frequencies,
        caps_khz=caps,
        temperatures_c={**parse_zones("\n".join(zones)), **parse_hal_temperatures(thermal)},
        battery_percent=battery.percent,
        battery_temperature_c=battery.temperature_c,
        thermal_status=parse_thermal_status(thermal),
        power=parse_power(power, said),
    )
