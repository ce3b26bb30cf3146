"""The script that queries a phone, and the facts parsed from its output."""

import re

from phonograd.android_harness.phones.cores import group_clusters, parse_cores
from phonograd.android_harness.phones.facts import PhoneFacts
from phonograd.android_harness.phones.power import (
    cpu_temperature,
    parse_battery,
    parse_hal_temperatures,
    parse_thermal_status,
    parse_zones,
)

PROPERTIES = (
    "ro.product.manufacturer",
    "ro.product.model",
    "ro.soc.manufacturer",
    "ro.soc.model",
    "ro.hardware.chipname",
    "ro.board.platform",
    "ro.hardware",
    "ro.build.version.release",
    "ro.build.version.sdk",
    "ro.product.cpu.abi",
    "ro.build.fingerprint",
)
_SECTION = "phonograd-section"
# Any of these may fail or not exist; its section is empty then. dumpsys itself waits up to 10 s for a service.
FACTS_SCRIPT = f"""exec 2>/dev/null
section() {{ echo; echo "{_SECTION} $1"; }}
section properties
for name in {" ".join(PROPERTIES)}; do echo "$name=$(getprop $name)"; done
section cpuinfo
cat /proc/cpuinfo
section cores
cd /sys/devices/system/cpu && for core in cpu[0-9]*; do
  echo "$core max_khz=$(cat $core/cpufreq/cpuinfo_max_freq) capacity=$(cat $core/cpu_capacity)"
done
section meminfo
cat /proc/meminfo
section df
df -k /data/local/tmp
section zones
cd /sys/class/thermal && for zone in thermal_zone*; do echo "$(cat $zone/type) $(cat $zone/temp)"; done
section battery
dumpsys battery
section thermal
dumpsys thermalservice
"""
TEXT_LENGTH = 120
_FREE = re.compile(r"[0-9]{1,15}\s+[0-9]{1,15}\s+([0-9]{1,15})\s+[0-9]{1,3}%\s+/")


def parse_facts(serial: str, answer: str) -> PhoneFacts:
    """Parse the output of `FACTS_SCRIPT`; None for what is missing or not understood. Never raises."""
    sections = _sections(answer)

    def section(name: str) -> str:
        return sections.get(name, "")

    properties = parse_properties(section("properties"))
    cores = parse_cores(section("cores"), section("cpuinfo"))
    sdk = properties.get("ro.build.version.sdk", "")
    temperatures = parse_hal_temperatures(section("thermal")) | parse_zones(section("zones"))
    return PhoneFacts(
        serial=serial,
        manufacturer=properties.get("ro.product.manufacturer"),
        model=properties.get("ro.product.model"),
        soc=soc_name(properties),
        android=properties.get("ro.build.version.release"),
        sdk=int(sdk) if re.fullmatch("[0-9]{1,4}", sdk) else None,
        abi=properties.get("ro.product.cpu.abi"),
        fingerprint=properties.get("ro.build.fingerprint"),
        cores=cores,
        clusters=group_clusters(cores),
        memory_bytes=parse_meminfo(section("meminfo"), "MemTotal"),
        memory_available_bytes=parse_meminfo(section("meminfo"), "MemAvailable"),
        free_bytes=parse_df(section("df")),
        battery=parse_battery(section("battery")),
        thermal_status=parse_thermal_status(section("thermal")),
        temperature_c=cpu_temperature(temperatures),
    )


def _sections(answer: str) -> dict[str, str]:
    pieces = re.split(rf"^{_SECTION} ([a-z]+)$", answer, flags=re.MULTILINE)
    return dict(zip(pieces[1::2], pieces[2::2], strict=True))


def parse_properties(text: str) -> dict[str, str]:
    """Name -> value of lines `NAME=VALUE`, without control characters; empty and "unknown" values are left out."""
    properties = {}
    for line in text.splitlines():
        name, _, value = line.partition("=")
        value = "".join(character for character in value.strip() if character.isprintable())[:TEXT_LENGTH]
        if name in PROPERTIES and value and value.lower() != "unknown":
            properties[name] = value
    return properties


def soc_name(properties: dict[str, str]) -> str | None:
    """The SoC's name from Android 12's properties, else from the first older property that is set."""
    model = properties.get("ro.soc.model")
    if model is not None:
        return f"{properties.get('ro.soc.manufacturer', '')} {model}".strip()
    older = ("ro.hardware.chipname", "ro.board.platform", "ro.hardware")
    return next((properties[name] for name in older if name in properties), None)


def parse_meminfo(text: str, name: str) -> int | None:
    """Bytes of one line of /proc/meminfo, such as MemTotal."""
    match = re.search(rf"^{name}:\s*([0-9]{{1,15}}) kB\s*$", text, re.MULTILINE)
    return None if match is None else int(match[1]) << 10


def parse_df(text: str) -> int | None:
    """Free bytes from `df -k PATH`; busybox breaks the line after a long device name."""
    match = _FREE.search(text)
    return None if match is None else int(match[1]) << 10
