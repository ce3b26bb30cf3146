"""The files of the phone: Android's folders, a tool box, Android's own commands, /proc and /sys of its hardware."""

import os
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .spec import PhoneSpec

FOLDERS = (
    *("acct", "apex", "data", "dev", "lib", "metadata", "mnt", "odm", "proc", "product", "storage", "sys", "vendor"),
    *("system/bin", "system/etc", "system/lib64", "system/usr"),
)
LINKS = {"bin": "system/bin", "etc": "system/etc", "sdcard": "data/media/0", "sbin": "system/bin"}
ANDROID = Path(__file__).parent / "android"
COMMANDS = ANDROID / "bin"  # Android's own, as scripts
OLD_COMMANDS = ANDROID / "bin-before-11"  # those that are not toybox's before Android 11
TOYBOX = ANDROID / "toybox.txt"  # what toybox has on Android: no awk, no vi
# What it has on Android and lacks on Debian; and killall and pidof, which would take the emulator for the program.
BUSYBOX = ANDROID / "busybox.txt"
LIBRARIES = ("ld-linux-aarch64.so.1", "libc.so.6", "libm.so.6", "libcrypt.so.1")  # toybox's, of no use on a real phone
STATE = "metadata/phone"  # what Android's services know, as files


@dataclass(frozen=True)
class Core:
    """One of the phone's cores; frequencies in kHz."""

    number: int
    big: bool
    part: int
    khz: int
    capacity: int


def host_cores() -> list[int]:
    """The cores of this machine that a process may be pinned to, though this one may be pinned to fewer."""
    mine = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
        return sorted(os.sched_getaffinity(0))
    except OSError:
        return sorted(mine)
    finally:
        os.sched_setaffinity(0, mine)


def cores(spec: PhoneSpec) -> list[Core]:
    """The phone's cores, with this machine's numbers: the first half little, the others big."""
    numbers = host_cores()
    little = len(numbers) // 2
    return [
        Core(number, False, spec.little_part, spec.little_khz, spec.little_capacity)
        if place < little
        else Core(number, True, spec.big_part, spec.big_khz, 1024)
        for place, number in enumerate(numbers)
    ]


def properties(spec: PhoneSpec) -> dict[str, str]:
    """What `getprop` prints."""
    build = f"{spec.manufacturer.lower()}/{spec.product}/{spec.product}:{spec.android}/STAND.IN/1:user/release-keys"
    return {
        "ro.build.fingerprint": build,
        "ro.build.version.release": spec.android,
        "ro.build.version.sdk": str(spec.sdk),
        "ro.product.board": spec.product,
        "ro.product.brand": spec.manufacturer.lower(),
        "ro.product.cpu.abi": "arm64-v8a",
        "ro.product.cpu.abilist": "arm64-v8a,armeabi-v7a,armeabi",
        "ro.product.device": spec.product,
        "ro.product.manufacturer": spec.manufacturer,
        "ro.product.model": spec.model,
        "ro.product.name": spec.product,
        "ro.soc.model" if spec.sdk >= 31 else "ro.board.platform": spec.soc if spec.sdk >= 31 else spec.soc.lower(),
        "ro.hardware": spec.product,
        "sys.boot_completed": "1",
    }


def write(path: Path, text: str | int) -> None:
    """A file of one value, with the folders it needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n", "utf-8")


def fill_root(base: Path, spec: PhoneSpec, programs: Mapping[str, Path]) -> None:
    """What is read-only. programs: where this machine has them, and the libraries, by name."""
    for name in FOLDERS:
        (base / name).mkdir(parents=True)
    for name, target in LINKS.items():
        (base / name).symlink_to(target)
    tools = base / "system/bin"
    shutil.copy(programs["mksh"], tools / "sh")
    for box, names in (("toybox", TOYBOX), ("busybox", BUSYBOX)):
        shutil.copy(programs[box], tools / box)
        for name in names.read_text("ascii").split():
            (tools / name).symlink_to(box)
    for name in LIBRARIES:
        shutil.copy(programs[name], base / "lib" / name)
    for command in sorted([*COMMANDS.iterdir(), *(OLD_COMMANDS.iterdir() if spec.sdk < 30 else ())]):
        (tools / command.name).unlink(missing_ok=True)
        first, rest = command.read_text("utf-8").split("\n", 1)
        held = f"while [ -e /{STATE}/hang_at_{command.name} ]; do sleep 0.05; done"
        (tools / command.name).write_text(f"{first}\n{held}\n{rest}", "utf-8")
        (tools / command.name).chmod(0o755)
    write(base / "system/etc/passwd", "root:x:0:0::/:/system/bin/sh\nshell:x:2000:2000::/:/system/bin/sh")
    write(base / "system/etc/group", "root:x:0:\nshell:x:2000:")
    write(base / "system/etc/hosts", "127.0.0.1 localhost")
    write(base / "system/build.prop", "\n".join(f"{name}={value}" for name, value in properties(spec).items()))


def fill_writable(base: Path, spec: PhoneSpec) -> None:
    """/data as it comes from the factory, and what Android's services know at boot."""
    for name in ("data/local/tmp", "data/media/0", "data/misc/adb"):
        (base / name).mkdir(parents=True)
    (base / "data/local/tmp").chmod(0o771)
    # A page is taken from the beginning: storage that nothing takes could not be made full, since size 0 is no limit.
    (base / "data/misc/adb/adb_keys").write_text("a host's key\n")
    for name in ("data", "data/local", "data/misc"):
        (base / name).chmod(0o551)  # the owner of all is `shell` here: what is not its own, it may not write
    boot(base, spec)


def boot(base: Path, spec: PhoneSpec) -> None:
    """Make what every boot makes again."""
    for held in (base / STATE).glob("hang_at_*"):
        held.unlink()
    for path, text in (
        ("proc/cpuinfo", cpuinfo(spec)),
        ("proc/meminfo", meminfo(spec)),
        ("proc/boot_id", str(uuid.uuid4())),
        ("phone/properties", "\n".join(f"{name}={value}" for name, value in sorted(properties(spec).items()))),
        ("phone/thermal_status", "0"),
        ("phone/fixed_performance_mode", "false"),
        ("phone/wakefulness", "Awake"),
        ("phone/doze", "ACTIVE"),
        ("phone/doze_enabled", "1"),
    ):
        write(base / "metadata" / path, text)


def cpuinfo(spec: PhoneSpec) -> str:
    """/proc/cpuinfo as arm64 kernels print it."""
    blocks = [
        f"processor\t: {core.number}\nBogoMIPS\t: 38.40\nFeatures\t: {spec.features}\nCPU implementer\t: 0x41\n"
        f"CPU architecture: 8\nCPU variant\t: 0x1\nCPU part\t: {core.part:#05x}\nCPU revision\t: 0\n"
        for core in cores(spec)
    ]
    return "\n".join([*blocks, f"Hardware\t: {spec.soc}"])


def meminfo(spec: PhoneSpec) -> str:
    """/proc/meminfo; half of the memory is available."""
    total = spec.memory_bytes // 1024
    sizes = {"MemTotal": total, "MemFree": total // 8, "MemAvailable": total // 2, "SwapTotal": total // 2}
    return "\n".join(f"{name + ':':<15} {kilobytes:>8} kB" for name, kilobytes in sizes.items())


def fill_sys(sys: Path, spec: PhoneSpec) -> None:
    """/sys: cores, thermal zones, battery."""
    everyone = cores(spec)
    folder = sys / "devices/system/cpu"
    for name in ("possible", "present", "online"):
        write(folder / name, _ranges([core.number for core in everyone]))
    for place, core in enumerate(everyone):
        _fill_core(folder, core, place)
    kinds = [f"cpu-{'big' if core.big else 'little'}-{core.number}" for core in everyone]
    for number, kind in enumerate([*kinds, "battery", "skin"]):
        write(sys / f"class/thermal/thermal_zone{number}/type", kind)
        write(sys / f"class/thermal/thermal_zone{number}/temp", round(spec.celsius * 1000))
    battery = sys / "class/power_supply/battery"
    for name, value in (("capacity", spec.battery_percent), ("status", "Charging"), ("temp", round(spec.celsius * 10))):
        write(battery / name, value)


def _fill_core(folder: Path, core: Core, place: int) -> None:
    mine = folder / f"cpu{core.number}"
    write(mine / "cpu_capacity", core.capacity)
    if place:
        write(mine / "online", 1)
    for name, value in (
        ("cpuinfo_max_freq", core.khz),
        ("scaling_max_freq", core.khz),
        ("scaling_cur_freq", core.khz),
    ):
        write(mine / "cpufreq" / name, value)


def _ranges(numbers: list[int]) -> str:
    """Write a list of CPUs like the kernel: 0-3,6."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
