"""The phone's world: its own mounts, made by the namespaces' first process before it becomes adbd.

The root is read-only, as Android's; /data has the size of the phone's storage, so a full one is really full. Its own
binfmt_misc (Linux 6.7 or later) runs arm64 programs under qemu here and nowhere else.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from .privileges import check, libc, obey_file_modes
from .spec import PhoneSpec
from .userland import fill_root, fill_sys, fill_writable

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
MNT_DETACH = 2
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_AARCH64 = (
    r":aarch64:M::\x7f\x45\x4c\x46\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
    r":\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
)
PAGE = os.sysconf("SC_PAGE_SIZE")


def mount(source: str, target: Path | str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """mount(2). OSError naming the target."""
    arguments = (source.encode(), str(target).encode(), kind.encode(), flags, options.encode())
    check(libc.mount(*arguments), f"mount {kind or source} on {target}")


def unmount(target: Path | str) -> None:
    """umount2(2), lazily."""
    check(libc.umount2(str(target).encode(), MNT_DETACH), f"umount {target}")


def resize_storage(nbytes: int) -> None:
    """/data's size from now on, in whole pages."""
    mount("data", "/data", "tmpfs", MS_REMOUNT | MS_NOSUID | MS_NODEV, f"size={nbytes // PAGE * PAGE}")


def storage_used() -> int:
    """Bytes that files take in /data."""
    found = os.statvfs("/data")
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def enter(spec: PhoneSpec, programs: Mapping[str, Path], emulator: Path, base: Path) -> None:
    """Build the world on the empty folder `base`, and make it this process's root."""
    mount("none", "/", "", MS_REC | MS_PRIVATE)
    mount("system", base, "tmpfs", 0, "mode=755")
    fill_root(base, spec, programs)
    _mount_inside(base, spec, emulator)
    mount("system", base, "tmpfs", MS_REMOUNT | MS_RDONLY)
    old = base / "mnt"
    check(libc.syscall(_PIVOT_ROOT[os.uname().machine], str(base).encode(), str(old).encode()), "pivot_root")
    os.chdir("/")
    unmount("/mnt")
    obey_file_modes()


def _mount_inside(base: Path, spec: PhoneSpec, emulator: Path) -> None:
    mount("data", base / "data", "tmpfs", MS_NOSUID | MS_NODEV, f"mode=771,size={spec.storage_bytes // PAGE * PAGE}")
    mount("metadata", base / "metadata", "tmpfs", 0, "mode=755,size=1m")
    fill_writable(base, spec)
    mount("sysfs", base / "sys", "tmpfs", 0, "mode=755,size=4m")
    fill_sys(base / "sys", spec)
    _mount_devices(base / "dev")
    mount("proc", base / "proc", "proc")
    for name, target in (("cpuinfo", "cpuinfo"), ("meminfo", "meminfo"), ("boot_id", "sys/kernel/random/boot_id")):
        mount(str(base / "metadata/proc" / name), base / "proc" / target, "", MS_BIND)
    formats = base / "proc/sys/fs/binfmt_misc"  # as long as it is mounted, what is registered is known
    mount("binfmt_misc", formats, "binfmt_misc")
    # F: the emulator is opened now, so that it need not be found later; P: argv[0] stays.
    (formats / "register").write_bytes(f"{_AARCH64}:{emulator}:PF".encode())


def _mount_devices(dev: Path) -> None:
    mount("tmpfs", dev, "tmpfs", 0, "mode=755,size=1m")
    for name in _DEVICES:
        (dev / name).touch()
        mount(f"/dev/{name}", dev / name, "", MS_BIND)
    (dev / "pts").mkdir()
    mount("devpts", dev / "pts", "devpts", 0, "newinstance,ptmxmode=0666,mode=0620")
    (dev / "ptmx").symlink_to("pts/ptmx")
    (dev / "fd").symlink_to("/proc/self/fd")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        (dev / name).symlink_to(f"/proc/self/fd/{number}")
