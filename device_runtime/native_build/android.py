"""The parts that replace Android's C library, which the compiler lacks (native/android/README.md)."""

import shutil
from collections.abc import Callable
from pathlib import Path

from phonograd.device_runtime.native_build.targets import NATIVE, Target

PARTS = NATIVE / "android"
# Called with the compiler's arguments and the output.
Compile = Callable[[tuple[str, ...], Path], None]


def android_headers() -> tuple[Path, ...]:
    """The headers that stand before musl's."""
    return tuple(sorted((PARTS / "include").rglob("*.h")))


def android_parts() -> tuple[Path, ...]:
    """Files that an Android library is compiled and linked with beside its sources and the compiler's own."""
    return (*android_headers(), PARTS / "start.cpp", *sorted(PARTS.glob("*.symbols")))


def make_c_library(folder: Path, place: Path, zig: Path, target: Target, compile_with: Compile) -> None:
    """Fill an empty folder, which will be renamed to `place`. Its libc.txt is for the compiler's variable ZIG_LIBC."""
    musl, parts, own = folder / "musl", folder / "parts", ("-target", target.musl, f"-mcpu={target.cpu}")
    headers = zig.parent / "lib" / "libc" / "include"
    kernel = {"aarch64": "aarch64-linux-any", "x86_64": "x86-linux-any"}[target.triple.partition("-")[0]]
    for name in ("generic-musl", target.musl, "any-linux-any", kernel):
        shutil.copytree(headers / name, musl, copy_function=_link, dirs_exist_ok=True)
    parts.mkdir()
    compile_with((*own, "-O2", "-fPIC", "-c", str(PARTS / "start.cpp")), parts / "crtbegin_so.o")
    for library in ("libc", "libdl", "libm"):
        names = PARTS / f"{library}.symbols"
        source = parts / f"{library}.s"
        source.write_text("".join(f".globl {name}\n{name}:\n" for name in names.read_text().split()))
        shared = ("-nostdlib", "-shared", f"-Wl,-soname,{library}.so")
        compile_with((*own, *shared, str(source)), parts / f"{library}.so")
    (parts / "end.s").touch()
    compile_with((*own, "-c", str(parts / "end.s")), parts / "crtend_so.o")
    shutil.copytree(PARTS / "include", folder / "include")  # the checkout may be gone when another uses this cache
    named = {"include_dir": place / "include", "sys_include_dir": place / "musl"}
    named |= dict.fromkeys(("crt_dir", "cc_dir"), place / "parts")
    unused = "".join(f"{name}=\n" for name in ("msvc_lib_dir", "kernel32_lib_dir", "darwin_sdk_dir"))
    (folder / "libc.txt").write_text("".join(f"{name}={path}\n" for name, path in named.items()) + unused)


def _link(source: str, place: str) -> None:
    """Folders are laid over each other: a later one's file takes the place of an earlier one's."""
    Path(place).unlink(missing_ok=True)
    Path(place).symlink_to(source)
