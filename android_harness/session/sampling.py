"""Clocks, caps, temperatures and battery, read on the phone beside what is measured there."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence

from phonograd.android_harness.adb.client import Adb
from phonograd.android_harness.adb.process import PhoneProcess
from phonograd.android_harness.errors import PhoneLostError, PhoneSilentError
from phonograd.android_harness.phones.power import (
    parse_battery,
    parse_hal_temperatures,
    parse_power,
    parse_thermal_status,
    parse_zones,
)
from phonograd.android_harness.result import Sample
from phonograd.android_harness.session.keeper import phone_script

# A question to the battery's service costs tens of milliseconds of some core: not at every sample.
SERVICES_EVERY_SECONDS = 5.0
LISTEN_SECONDS = 0.25
# dumpsys may be at work.
ENDING_SECONDS = 5.0


def sample_now(adb: Adb, serial: str, at_s: float, timeout: float) -> Sample:
    """One sample, waited for no longer than `timeout` seconds. Raises PhoneLostError."""
    script = phone_script("sampler.sh", interval=0, every=1, rounds=1, alive="/")
    done = adb.shell(serial, script, timeout=timeout)
    return parse_sample(at_s, done.out.splitlines())


@contextlib.contextmanager
def watching(
    adb: Adb,
    serial: str,
    alive: str,
    interval: float,
    on_sample: Callable[[Sample], None],
    clock: Callable[[], float],
) -> Iterator[None]:
    """Call `on_sample` every `interval` seconds, from a thread of its own, while the block lasts.

    `alive` is a path on the phone; without it, sampling there ends, whether this machine is still there or not.
    """
    every = max(1, round(SERVICES_EVERY_SECONDS / interval))
    script = phone_script("sampler.sh", interval=interval, every=every, rounds=-1, alive=alive)
    with adb.start(serial, script) as process:
        ended = threading.Event()
        listener = threading.Thread(
            target=_listen, args=(process, ended, on_sample, clock), name=f"samples of {serial}", daemon=True
        )
        listener.start()
        try:
            yield
        finally:
            process.close()  # it ends by that
            listener.join(ENDING_SECONDS)
            ended.set()
            process.kill()
            listener.join()


def _listen(
    process: PhoneProcess, ended: threading.Event, on_sample: Callable[[Sample], None], clock: Callable[[], float]
) -> None:
    lines: list[str] = []
    with contextlib.suppress(PhoneLostError):  # what runs beside says that the phone is lost
        while not ended.is_set():
            try:
                line = process.line(LISTEN_SECONDS)
            except PhoneSilentError:
                continue
            if line is None:
                return
            lines.append(line)
            if line == "end":
                on_sample(parse_sample(clock(), lines))
                lines = []


def parse_sample(at_s: float, lines: Sequence[str]) -> Sample:
    """What on_phone/sampler.sh prints from `sample` to `end`; whatever is missing or odd is left out."""
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
    said = "\n".join(services["battery"])
    battery = parse_battery(said)
    thermal = "\n".join(services["thermalservice"])
    temperatures = {**parse_zones("\n".join(zones)), **parse_hal_temperatures(thermal)}
    status = parse_thermal_status(thermal)
    return Sample(
        at_s=at_s,
        frequencies_khz=frequencies,
        caps_khz=caps,
        temperatures_c=temperatures,
        battery_percent=battery.percent,
        battery_temperature_c=battery.temperature_c,
        thermal_status=status,
        power=parse_power(power, said),
    )
