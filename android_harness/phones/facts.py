"""What a phone says of itself."""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from phonograd.device_runtime.base.documents import Count, Integer, Number, Record, about

CoreNumber = Annotated[int, Meta(ge=0, le=9999)]
# msgspec's schemas say nothing of keys that are numbers.
BY_CORE = Meta(extra_json_schema={"propertyNames": {"pattern": "^(0|[1-9][0-9]{0,3})$"}})


class Core(Record, frozen=True):
    """One CPU core, as /sys and /proc/cpuinfo have it."""

    number: Annotated[Count, about("Its number")]
    max_khz: Annotated[Count | None, about("Its highest clock, in kHz")]
    capacity: Annotated[Count | None, about("Its speed, of 1024 for the fastest core")]
    part: Annotated[str | None, about("A name such as Cortex-A76, or the hexadecimal part number")]


class Cluster(Record, frozen=True):
    """Cores of one kind."""

    cores: Annotated[tuple[Count, ...], about("The cores' numbers")]
    max_khz: Annotated[Count | None, about("Their highest clock, in kHz")]
    part: Annotated[str | None, about("A name such as Cortex-A76, or the hexadecimal part number")]


class Battery(Record, frozen=True):
    """The battery before the run."""

    percent: Annotated[Count | None, about("Charge, in percent")]
    temperature_c: Annotated[Number | None, about("Temperature, in °C")]
    charging: Annotated[bool | None, about("Whether power comes in")]


class Power(Record, frozen=True):
    """What the battery gives at one moment; null where the phone does not say."""

    current_ua: Annotated[
        Integer | None,
        about("Current (current_now), in µA; its sign, and on some phones its unit, are the maker's choice"),
    ]
    voltage_uv: Annotated[Integer | None, about("Voltage, in µV")]
    charge_uah: Annotated[Integer | None, about("Charge counter, in µAh")]
    plugged_in: Annotated[bool | None, about("Whether power comes in")]


class PhoneFacts(Record, frozen=True):
    """What the phone says of itself before the run; null where it does not say."""

    serial: Annotated[str, about("The phone's serial, as adb lists it")]
    manufacturer: Annotated[str | None, about("Who made it")]
    model: Annotated[str | None, about("Its model")]
    soc: Annotated[str | None, about("Its system on a chip")]
    android: Annotated[str | None, about("Version of Android")]
    sdk: Annotated[Count | None, about("Android's API level")]
    abi: Annotated[str | None, about("The ABI of its programs, such as arm64-v8a")]
    fingerprint: Annotated[str | None, about("Android's build fingerprint")]
    cores: Annotated[tuple[Core, ...], about("Its cores")]
    clusters: Annotated[tuple[Cluster, ...], about("Its cores by kind")]
    memory_bytes: Annotated[Count | None, about("Memory, in bytes")]
    memory_available_bytes: Annotated[Count | None, about("Memory that programs could have, in bytes")]
    free_bytes: Annotated[Count | None, about("Free space of /data/local/tmp, in bytes")]
    battery: Annotated[Battery, about("The battery")]
    thermal_status: Annotated[
        Count | None, about("Android's: 0 none, 1 light, 2 moderate, 3 severe, 4 critical, 5 emergency, 6 shutdown")
    ]
    temperature_c: Annotated[Number | None, about("Temperature, in °C")]


@dataclass(frozen=True)
class Phone:
    """A phone that adb lists; without `facts`, nothing could be asked.

    Not ready: `reason` says why and `cure` what to do.
    """

    serial: str
    state: str
    facts: PhoneFacts | None
    reason: str | None = None
    cure: str | None = None

    @property
    def ready(self) -> bool:
        """Whether work can begin on it."""
        return self.reason is None
