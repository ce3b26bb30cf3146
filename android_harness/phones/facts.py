"""What a phone reports about itself."""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from phonograd.device_runtime.base.documents import Count, Integer, Number, Record, about

CoreNumber = Annotated[int, Meta(ge=0, le=9999)]
# msgspec's schemas say nothing of keys that are numbers.
BY_CORE = Meta(extra_json_schema={"propertyNames": {"pattern": "^(0|[1-9][0-9]{0,3})$"}})


class Core(Record, frozen=True):
    """One CPU core, from /sys and /proc/cpuinfo."""

    number: Annotated[Count, about("Its number")]
    max_khz: Annotated[Count | None, about("Its highest clock, in kHz")]
    capacity: Annotated[Count | None, about("Its relative speed; the fastest core has 1024")]
    part: Annotated[str | None, about("A name such as Cortex-A76, or the hexadecimal part number")]


class Cluster(Record, frozen=True):
    """Cores of the same kind."""

    cores: Annotated[tuple[Count, ...], about("The cores' numbers")]
    max_khz: Annotated[Count | None, about("Their highest clock, in kHz")]
    part: Annotated[str | None, about("A name such as Cortex-A76, or the hexadecimal part number")]


class Battery(Record, frozen=True):
    """The battery before the run."""

    percent: Annotated[Count | None, about("Charge, in percent")]
    temperature_c: Annotated[Number | None, about("Temperature, in °C")]
    charging: Annotated[bool | None, about("Whether it is charging or on external power")]


class Power(Record, frozen=True):
    """The battery's current, voltage and charge at one moment; null if the phone does not report it."""

    current_ua: Annotated[
        Integer | None,
        about("Current (current_now), in µA; the sign, and on some phones the unit, depend on the manufacturer"),
    ]
    voltage_uv: Annotated[Integer | None, about("Voltage, in µV")]
    charge_uah: Annotated[Integer | None, about("Charge counter, in µAh")]
    plugged_in: Annotated[bool | None, about("Whether it is on external power")]


class PhoneFacts(Record, frozen=True):
    """What the phone reports about itself before the run; null if it does not report it."""

    serial: Annotated[str, about("The serial that adb lists; with @ and its place if several phones have it")]
    manufacturer: Annotated[str | None, about("Its manufacturer")]
    model: Annotated[str | None, about("Its model")]
    soc: Annotated[str | None, about("Its system on a chip")]
    android: Annotated[str | None, about("Version of Android")]
    sdk: Annotated[Count | None, about("Android's API level")]
    abi: Annotated[str | None, about("The ABI of its programs, such as arm64-v8a")]
    fingerprint: Annotated[str | None, about("Android's build fingerprint")]
    cores: Annotated[tuple[Core, ...], about("Its cores")]
    clusters: Annotated[tuple[Cluster, ...], about("Its cores, grouped by kind")]
    memory_bytes: Annotated[Count | None, about("Memory, in bytes")]
    memory_available_bytes: Annotated[Count | None, about("Memory available to programs, in bytes")]
    free_bytes: Annotated[Count | None, about("Free space of /data/local/tmp, in bytes")]
    battery: Annotated[Battery, about("The battery")]
    thermal_status: Annotated[
        Count | None,
        about("Android's thermal status: 0 none, 1 light, 2 moderate, 3 severe, 4 critical, 5 emergency, 6 shutdown"),
    ]
    temperature_c: Annotated[Number | None, about("Temperature, in °C")]


@dataclass(frozen=True)
class Phone:
    """A phone that adb lists; `facts` is None if it could not be queried.

    If it is not ready, `reason` says why and `cure` what to do.
    """

    serial: str
    state: str
    facts: PhoneFacts | None
    reason: str | None = None
    cure: str | None = None

    @property
    def ready(self) -> bool:
        """Whether it can be used now."""
        return self.reason is None
