"""A phone that gets hot when it works: its frequencies fall while its processes use a core, and rise again after."""

import asyncio
import os
from contextlib import suppress
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
STEPS = 10


def cpu_seconds() -> float:
    """What the phone's processes have used of the cores, adbd's own part not counted."""
    ticks = 0
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and folder.name != "1":
            with suppress(OSError, IndexError):
                fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
                ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS_PER_S


async def throttle(floor: float, celsius_per_step: float, step_seconds: float) -> None:
    """For ever: every so often one of ten steps towards `floor` of the full frequency, or back."""
    cores = [folder / "cpufreq" for folder in Path("/sys/devices/system/cpu").glob("cpu[0-9]*")]
    full = {core: int((core / "cpuinfo_max_freq").read_bytes()) for core in cores}
    zones = list(Path("/sys/class/thermal").glob("thermal_zone*/temp"))
    cool = {zone: int(zone.read_bytes()) for zone in zones}
    hot = 0
    before = cpu_seconds()
    while True:
        await asyncio.sleep(step_seconds)
        now = cpu_seconds()
        busy = now - before > step_seconds / 2
        before = now
        hot = min(hot + 1, STEPS) if busy else max(hot - 1, 0)
        share = 1 - (1 - floor) * hot / STEPS
        for core, khz in full.items():
            for name in ("scaling_cur_freq", "scaling_max_freq"):
                (core / name).write_bytes(b"%d\n" % round(khz * share))
        for zone, millis in cool.items():
            zone.write_bytes(b"%d\n" % round(millis + 1000 * celsius_per_step * hot))
