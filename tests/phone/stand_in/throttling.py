"""A phone that gets hot when it works: its frequencies fall while a process wants a core, and rise again after."""

import asyncio
from contextlib import suppress
from pathlib import Path

STEPS = 10


def works() -> bool:
    """Whether a thread of the phone's processes runs or waits for a core; adbd's own do not count.

    What it has used of a core tells nothing: this machine may be busy with something else.
    """
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and process.name != "1":
            with suppress(OSError):  # it has ended meanwhile
                if any(_state(thread) == b"R" for thread in (process / "task").iterdir()):
                    return True
    return False


def _state(thread: Path) -> bytes:
    return (thread / "stat").read_bytes().rpartition(b")")[2].split()[0]


async def throttle(floor: float, celsius_per_step: float, step_seconds: float) -> None:
    """For ever: every so often one of ten steps towards `floor` of the full frequency, or back."""
    cores = [folder / "cpufreq" for folder in Path("/sys/devices/system/cpu").glob("cpu[0-9]*")]
    full = {core: int((core / "cpuinfo_max_freq").read_bytes()) for core in cores}
    zones = list(Path("/sys/class/thermal").glob("thermal_zone*/temp"))
    cool = {zone: int(zone.read_bytes()) for zone in zones}
    hot = 0
    while True:
        await asyncio.sleep(step_seconds)
        hot = min(hot + 1, STEPS) if works() else max(hot - 1, 0)
        share = 1 - (1 - floor) * hot / STEPS
        for core, khz in full.items():
            for name in ("scaling_cur_freq", "scaling_max_freq"):
                (core / name).write_bytes(b"%d\n" % round(khz * share))
        for zone, millis in cool.items():
            zone.write_bytes(b"%d\n" % round(millis + 1000 * celsius_per_step * hot))
