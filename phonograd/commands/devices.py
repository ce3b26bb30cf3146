"""`phonograd devices`: the phones on this machine, what they are, and whether work can begin on them."""

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from phonograd.android_harness.phones.facts import Battery, Phone, PhoneFacts
from phonograd.console import Console, output_options


@click.command()
@click.option("--serial", "serials", multiple=True, help="Only this phone, by adb's serial; may be repeated.")
@click.option(
    "--restore",
    is_flag=True,
    help="Restore the settings of all connected phones, and remove phonograd's files from them, also after --keep.",
)
@output_options
def devices(console: Console, serials: Sequence[str], restore: bool) -> None:
    """List the phones on adb: model, SoC, cores, memory, battery, heat; whether each is ready, or what to do.

    A phone is ready if it has room for the 2x650 model, which a smaller model does not need.

    The exit code is 0 if a phone is ready, 20 if none is, 19 without adb; 22 if --restore finds one in use.
    """
    from phonograd.android_harness.adb.client import Adb
    from phonograd.android_harness.adb.states import ONLINE
    from phonograd.android_harness.adb.tool import find_adb
    from phonograd.android_harness.phones import discovery
    from phonograd.android_harness.phones.readiness import FULL_SIZE_BYTES, Readiness
    from phonograd.android_harness.session import find_leftovers, restore_phone

    adb = Adb(find_adb())
    rules = Readiness(min_free_bytes=FULL_SIZE_BYTES)
    if restore:
        serials = serials or discovery.serials_of_environment()
    phones = discovery.discover(adb, rules, serials)
    if restore:
        for phone in phones:
            if phone.state == ONLINE:
                restore_phone(adb, phone.serial)
                console.say(f"phone {phone.serial}: restored; no file of phonograd is left on it")
        phones = discovery.discover(adb, rules, serials)  # they have more free space
    leftovers = {phone.serial: find_leftovers(adb, phone.serial) for phone in phones if phone.facts is not None}
    console.result(
        {
            "adb": {"path": str(adb.tool.path), "version": adb.tool.version, "origin": adb.tool.origin},
            "phones": [
                {**msgspec.to_builtins(phone), "ready": phone.ready, "leftovers": leftovers.get(phone.serial, ())}
                for phone in phones
            ],
        },
        ("Phones", [_row(phone) for phone in phones]),
    )
    for serial, left in leftovers.items():
        if left:
            console.say(
                f"phone {serial}: an earlier run was cut off, perhaps by a reboot, and left {', '.join(left)}; the "
                "next run restores the phone, or phonograd devices --restore now"
            )
    if not any(phone.ready for phone in phones):
        raise discovery.none_ready_error(phones)
    for phone in phones:
        if not phone.ready:
            console.say(discovery.not_ready_line(phone))


def _row(phone: Phone) -> dict[str, Any]:
    """A phone in the table. Cells have several lines, so that a row stays within 120 columns."""
    facts = {} if phone.facts is None else _facts(phone.facts)
    return {"serial": phone.serial, "ready": "yes" if phone.ready else "no", **facts}


def _facts(facts: PhoneFacts) -> dict[str, Any]:
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


def _battery(battery: Battery) -> str | None:
    if battery.percent is None:
        return None
    return _lines(f"{battery.percent} %", "charging" if battery.charging else None)


def _heat(facts: PhoneFacts) -> str | None:
    from phonograd.android_harness.phones.readiness import THERMAL_STATUSES

    status = None if facts.thermal_status is None else THERMAL_STATUSES[facts.thermal_status]
    celsius = None if facts.temperature_c is None else f"{facts.temperature_c:.0f} °C"
    return _lines(status, celsius)
