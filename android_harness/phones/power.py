"""A phone's battery and temperatures, from dumpsys and /sys."""

import re
from collections.abc import Mapping, Sequence

from phonograd.android_harness.phones.facts import Battery, Power

# Values outside are not temperatures but a sensor that is off (-274, 0 in another unit, 0x7fffffff).
COLDEST_C, HOTTEST_C = -40.0, 150.0
_SETTING = re.compile(r"\s*([A-Za-z ]{1,40}):\s*(true|false|-?[0-9]{1,9})\s*")
_NUMBER = re.compile("-?[0-9]{1,12}")
# The battery's status in /sys, and whether it means external power.
_STATES: Mapping[str, bool] = {"Charging": True, "Full": True, "Not charging": True, "Discharging": False}
_NO_HAL = re.compile(r"^\s*HAL Ready:\s*false\s*$", re.MULTILINE)
_STATUS = re.compile(r"^\s*Thermal Status:\s*([0-6])\s*$", re.MULTILINE)
_HAL = re.compile(r"Temperature\{mValue=(-?[0-9]{1,5}(?:\.[0-9]{1,9})?), mType=(-?[0-9]{1,4}), mName=([^,}\n]{1,60}),")
_ZONE = re.compile(r"(\S{1,60}) (-?[0-9]{1,9})\s*")
# Qualcomm's zones of these names are the battery's state of charge, in percent.
_NO_HEAT = frozenset({"soc", "socd"})
_CPU = re.compile(r"cpu|soc|tsens|big|little|mid|apc|gold|silver|cluster", re.IGNORECASE)


def parse_battery(text: str) -> Battery:
    """Parse `dumpsys battery`: the first value of each name, as manufacturers append their own sections."""
    values = _settings(text)
    level, scale, tenths = (_whole(values.get(name)) for name in ("level", "scale", "temperature"))
    return Battery(
        None if level is None or level < 0 else min(100 * level // max(scale or 100, 1), 100),
        None if tenths is None else valid_temperature(tenths / 10),
        _is_powered(values),
    )


def parse_power(files: Sequence[str], text: str) -> Power:
    """Parse /sys's current_now, voltage_now, charge_counter and status ("-" if missing), and `dumpsys battery`.

    /sys takes precedence; dumpsys has no current, and the voltage in mV.
    """
    current, voltage, charge = ([int(word) if _NUMBER.fullmatch(word) else None for word in files] + [None] * 3)[:3]
    values = _settings(text)
    millivolts = _whole(values.get("voltage"))
    if voltage is None and millivolts is not None:
        voltage = 1000 * millivolts
    answers = [powered for powered in (_is_powered(values), _STATES.get(" ".join(files[3:]))) if powered is not None]
    return Power(
        current,
        voltage if voltage else None,
        charge if charge is not None else _whole(values.get("Charge counter")),
        any(answers) if answers else None,
    )


def _settings(text: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for line in text.splitlines():
        match = _SETTING.fullmatch(line)
        if match is not None:
            values.setdefault(match[1].strip(), match[2])
    if values.get("present") == "false":  # a box without a battery, whose figures are all 0
        return {name: value for name, value in values.items() if name.endswith(" powered")}
    return values


def _is_powered(values: Mapping[str, str]) -> bool | None:
    powered = [value == "true" for name, value in values.items() if name.endswith(" powered")]
    return any(powered) if powered else None


def parse_thermal_status(text: str) -> int | None:
    """Android's thermal status, 0 to 6, from `dumpsys thermalservice` (Android 10 and later).

    A phone whose thermal HAL is not ready says 0 whatever its heat: None.
    """
    match = _STATUS.search(text)
    return None if match is None or _NO_HAL.search(text) else int(match[1])


def parse_hal_temperatures(text: str) -> dict[str, float]:
    """Name -> °C from `dumpsys thermalservice`; it lists current values after cached ones of the same name."""
    temperatures = ((name.strip(), valid_temperature(float(value))) for value, _, name in _HAL.findall(text))
    return {name: celsius for name, celsius in temperatures if celsius is not None}


def parse_zones(text: str) -> dict[str, float]:
    """Name -> °C from lines `TYPE VALUE` of /sys/class/thermal: thousandths of a degree, or whole ones (old kernels).

    Of several zones with one name, the hottest counts.
    """
    zones: dict[str, float] = {}
    for line in text.splitlines():
        match = _ZONE.fullmatch(line)
        if match is None or match[1] in _NO_HEAT:
            continue
        value = int(match[2])
        celsius = valid_temperature(float(value) if abs(value) <= HOTTEST_C else value / 1000)
        if celsius is not None:
            zones[match[1]] = max(celsius, zones.get(match[1], COLDEST_C))
    return zones


def cpu_temperature(temperatures: Mapping[str, float]) -> float | None:
    """The hottest sensor whose name suggests the CPU; without one, the hottest of all."""
    of_cpu = [celsius for name, celsius in temperatures.items() if _CPU.search(name)]
    return max(of_cpu or temperatures.values(), default=None)


def valid_temperature(celsius: float) -> float | None:
    """The temperature if a phone can have it, else None."""
    return celsius if COLDEST_C < celsius < HOTTEST_C and celsius != 0 else None


def _whole(digits: str | None) -> int | None:
    return int(digits) if digits is not None and digits not in ("true", "false") else None
