"""What a phone says of itself."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Core:
    """One CPU core, as /sys and /proc/cpuinfo have it; None where the phone does not say.

    `capacity` is of the fastest core's 1024, `part` a name such as Cortex-A76, or the hexadecimal part number.
    """

    number: int
    max_khz: int | None
    capacity: int | None
    part: str | None


@dataclass(frozen=True)
class Cluster:
    """Cores of one kind."""

    cores: tuple[int, ...]
    max_khz: int | None
    part: str | None


@dataclass(frozen=True)
class Battery:
    """Charge in percent, temperature in °C, and whether power comes in; None where the phone does not say."""

    percent: int | None
    temperature_c: float | None
    charging: bool | None


@dataclass(frozen=True)
class Power:
    """What the battery gives at one moment, in µA, µV and µAh, as the kernel has it; None where the phone does not say.

    The current's sign, and on some phones its unit, are the maker's choice. `plugged_in`: whether power comes in.
    """

    current_ua: int | None
    voltage_uv: int | None
    charge_uah: int | None
    plugged_in: bool | None


@dataclass(frozen=True)
class PhoneFacts:
    """One phone; None where it does not say.

    `thermal_status` is Android's: 0 none, 1 light, 2 moderate, 3 severe, 4 critical, 5 emergency, 6 shutdown. Bytes are
    bytes; `free_bytes` are those of /data/local/tmp.
    """

    serial: str
    manufacturer: str | None
    model: str | None
    soc: str | None
    android: str | None
    sdk: int | None
    abi: str | None
    fingerprint: str | None
    cores: tuple[Core, ...]
    clusters: tuple[Cluster, ...]
    memory_bytes: int | None
    memory_available_bytes: int | None
    free_bytes: int | None
    battery: Battery
    thermal_status: int | None
    temperature_c: float | None


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
