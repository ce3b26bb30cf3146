"""Names of CPU cores by the implementer and part numbers of their MIDR register, as Linux and LLVM list them."""

from collections.abc import Mapping

_ARM = {
    0xD02: "Cortex-A34",
    0xD03: "Cortex-A53",
    0xD04: "Cortex-A35",
    0xD05: "Cortex-A55",
    0xD06: "Cortex-A65",
    0xD07: "Cortex-A57",
    0xD08: "Cortex-A72",
    0xD09: "Cortex-A73",
    0xD0A: "Cortex-A75",
    0xD0B: "Cortex-A76",
    0xD0C: "Neoverse-N1",
    0xD0D: "Cortex-A77",
    0xD40: "Neoverse-V1",
    0xD41: "Cortex-A78",
    0xD44: "Cortex-X1",
    0xD46: "Cortex-A510",
    0xD47: "Cortex-A710",
    0xD48: "Cortex-X2",
    0xD49: "Neoverse-N2",
    0xD4B: "Cortex-A78C",
    0xD4C: "Cortex-X1C",
    0xD4D: "Cortex-A715",
    0xD4E: "Cortex-X3",
    0xD4F: "Neoverse-V2",
    0xD80: "Cortex-A520",
    0xD81: "Cortex-A720",
    0xD82: "Cortex-X4",
    0xD85: "Cortex-X925",
    0xD87: "Cortex-A725",
    0xD8A: "C1-Nano",
    0xD8B: "C1-Pro",
    0xD8C: "C1-Ultra",
    0xD90: "C1-Premium",
}
_HISILICON = {0xD01: "TaiShan v110", 0xD40: "Cortex-A76"}
_NVIDIA = {0x000: "Denver", 0x003: "Denver 2", 0x004: "Carmel"}
_QUALCOMM = {
    0x001: "Oryon",
    0x201: "Kryo",
    0x205: "Kryo",
    0x211: "Kryo",
    0x800: "Kryo 2xx Gold",
    0x801: "Kryo 2xx Silver",
    0x802: "Kryo 3xx Gold",
    0x803: "Kryo 3xx Silver",
    0x804: "Kryo 4xx Gold",
    0x805: "Kryo 4xx Silver",
}
_SAMSUNG = {0x001: "Exynos M1", 0x002: "Exynos M3", 0x003: "Exynos M4", 0x004: "Exynos M5"}
_PARTS: Mapping[int, Mapping[int, str]] = {
    0x41: _ARM,
    0x48: _HISILICON,
    0x4E: _NVIDIA,
    0x51: _QUALCOMM,
    0x53: _SAMSUNG,
}
_LITTLE = ("Cortex-A34", "Cortex-A35", "Cortex-A53", "Cortex-A55", "Cortex-A510", "Cortex-A520", "C1-Nano")
_PRIME = ("Cortex-X", "C1-Ultra", "C1-Premium")


def part_name(implementer: int, part: int) -> str:
    """The core's name, or its part number as 0xabc."""
    return _PARTS.get(implementer, {}).get(part, f"{part:#05x}")


def speed_rank(name: str) -> int:
    """0 for little cores, 2 for the fastest kinds, 1 for all others; for phones that do not report clock speeds."""
    if name in _LITTLE or name.endswith("Silver"):
        return 0
    return 2 if name.startswith(_PRIME) else 1
