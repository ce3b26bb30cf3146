"""`phonograd devices`: the phones on this machine, what they are, and whether work can begin on them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from phonograd.console import Console, output_options

if TYPE_CHECKING:
    from phonograd.android_harness.phones.facts import Battery, Phone, PhoneFacts


@click.command()
@click.option("--serial", "serials", multiple=True, help="Only this phone, by adb's serial; may be repeated.")
@output_options
def devices(console: Console, serials: Sequence[str]) -> None:
    """List the phones on adb: model, SoC, cores, memory, battery, heat; whether each is ready, or what to do.

    The exit code is 0 if a phone is ready, 20 if none is, 19 without adb.
    """
    from phonograd.android_harness.adb.client import Adb
    from phonograd.android_harness.adb.tool import find_adb
    from phonograd.android_harness.phones.discovery import discover, none_ready_error, not_ready_line

    adb = Adb(find_adb())
    phones = discover(adb, serials=serials)
    console.result(
        {
            "adb": {"path": str(adb.tool.path), "version": adb.tool.version, "origin": adb.tool.origin},
            "phones": [{**msgspec.to_builtins(phone), "ready": phone.ready} for phone in phones],
        },
        ("Phones", [_row(phone) for phone in phones]),
    )
    if not any(phone.ready for phone in phones):
        raise none_ready_error(phones)
    for phone in phones:
        if not phone.ready:
            console.say(not_ready_line(phone))


def _row(phone: "Phone") -> dict[str, Any]:
    """A phone in the table. Cells have several lines, so that a row stays within 120 columns."""
    facts = {} if phone.facts is None else _facts(phone.facts)
    return {"serial": phone.serial, "ready": "yes" if phone.ready else "no", **facts}


def _facts(facts: "PhoneFacts") -> dict[str, Any]:
    from phonograd.android_harness.phones.cores import describe_cores

    return {
        "phone, SoC": _lines(" ".join(filter(None, (facts.manufacturer, facts.model))), facts.soc),
        "Android": facts.android,
        "cores": describe_cores(facts.clusters).replace(" + ", " +\n") or None,
        "memory": _lines(_gigabytes(facts.memory_bytes, "RAM"), _gigabytes(facts.free_bytes, "free")),
        "battery": _battery(facts.battery),
        "heat": _heat(facts),
    }


def _lines(*texts: str | None) -> str | None:
    return "\n".join(filter(None, texts)) or None


def _gigabytes(nbytes: int | None, what: str) -> str | None:
    return None if nbytes is None else f"{nbytes / 1e9:.1f} GB {what}"


def _battery(battery: "Battery") -> str | None:
    if battery.percent is None:
        return None
    return _lines(f"{battery.percent} %", "charging" if battery.charging else None)


def _heat(facts: "PhoneFacts") -> str | None:
    """Android's thermal status in words, and the CPU's temperature."""
    from phonograd.android_harness.phones.readiness import THERMAL_STATUSES

    status = None if facts.thermal_status is None else THERMAL_STATUSES[facts.thermal_status]
    celsius = None if facts.temperature_c is None else f"{facts.temperature_c:.0f} °C"
    return _lines(status, celsius)
