"""The library of Keyboard for a JVM: this host's, and Android's over a stand-in of Android's C library."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from phonograd.device_runtime.native_build import build_android_library, build_host_library
from phonograd.device_runtime.native_build.compiler import COMPILER_CACHE, compiler_cache, find_zig
from phonograd.device_runtime.native_build.targets import HOST

BIONIC = Path(__file__).parent / "bionic"


@dataclass(frozen=True)
class Libraries:
    """A folder with libphonograd.so, and the variables that a JVM needs to load it."""

    folder: Path
    variables: Mapping[str, str]


def host_library(folder: Path) -> Libraries:
    """The library that Python loads."""
    (folder / "libphonograd.so").symlink_to(build_host_library().path)
    return Libraries(folder, {})


def android_library(folder: Path) -> Libraries:
    """Android's for x86-64, and libraries of the names that it needs. What they lack is found in glibc."""
    build_android_library["x86_64"](
        folder / "libphonograd.so"
    )  # a copy: a JVM follows links, and deep.cpp looks at names
    (folder / "none.cpp").touch()
    glibc = ("-Wl,--no-as-needed", "-lm", "-ldl")
    for name, source in (("libc", BIONIC / "libc.cpp"), ("libdl", folder / "none.cpp"), ("libm", folder / "none.cpp")):
        _link(folder / f"{name}.so", source, f"-Wl,-soname,{name}.so", *glibc)
    _link(folder / "deep.so", BIONIC / "deep.cpp", *glibc)
    return Libraries(folder, {"LD_LIBRARY_PATH": str(folder), "LD_PRELOAD": str(folder / "deep.so")})


def _link(out: Path, source: Path, *flags: str) -> None:
    line = [find_zig(), "c++", "-target", HOST.triple, "-shared", "-fPIC", "-O1", source, *flags, "-o", out]
    variables = os.environ | {COMPILER_CACHE: compiler_cache(), "ZIG_LOCAL_CACHE_DIR": str(out.parent / "zig")}
    subprocess.run(line, check=True, env=variables)
