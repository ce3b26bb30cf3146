"""What a stand-in phone is like: model, cores, memory, storage."""

from dataclasses import dataclass

GIB = 1 << 30
# Much longer than anything takes, even on a busy machine: whoever reaches it hangs.
PATIENCE_SECONDS = 600.0


@dataclass(frozen=True)
class PhoneSpec:
    """One phone's build. Its cores are this machine's, half little and half big.

    `cpu` is qemu's name of a CPU; `little_part` and `big_part` are what /proc/cpuinfo says (ARM's part numbers).
    Frequencies are kHz, bytes are bytes. With `trusts_hosts` False the dialog "Allow USB debugging?" stays open until
    `StandInPhone.authorise`.
    """

    model: str
    manufacturer: str
    product: str
    soc: str
    cpu: str
    little_part: int
    big_part: int
    little_khz: int
    big_khz: int
    little_capacity: int
    features: str
    android: str = "13"
    sdk: int = 33
    memory_bytes: int = 4 * GIB
    storage_bytes: int = 2 * GIB
    battery_percent: int = 80
    celsius: float = 30.0
    trusts_hosts: bool = True


_ARMV8_0 = "fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid"
_ARMV8_2 = "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp"

A53 = PhoneSpec(
    model="Stand-in A53",
    manufacturer="QEMU",
    product="standin_a53",
    soc="armv8.0",
    cpu="cortex-a53",
    little_part=0xD03,
    big_part=0xD03,
    little_khz=1_500_000,
    big_khz=2_000_000,
    little_capacity=768,
    features=_ARMV8_0,
    android="9",
    sdk=28,
    memory_bytes=2 * GIB,
)
A76 = PhoneSpec(
    model="Stand-in A76",
    manufacturer="QEMU",
    product="standin_a76",
    soc="armv8.2",
    cpu="cortex-a76",
    little_part=0xD05,
    big_part=0xD0B,
    little_khz=1_785_600,
    big_khz=2_841_600,
    little_capacity=261,
    features=_ARMV8_2,
    memory_bytes=6 * GIB,
)
MAX = PhoneSpec(
    model="Stand-in max",
    manufacturer="QEMU",
    product="standin_max",
    soc="armv9",
    cpu="max,sme=off",  # without SME, for which qemu takes minutes
    little_part=0xD46,
    big_part=0xD4E,
    little_khz=1_704_000,
    big_khz=2_914_000,
    little_capacity=225,
    features=_ARMV8_2 + " sve i8mm bf16",
    android="15",
    sdk=35,
    memory_bytes=8 * GIB,
)
