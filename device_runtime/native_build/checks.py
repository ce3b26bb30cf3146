"""Checks of built files: will a phone's kernel start the binary, will glibc load a library?"""

from dataclasses import dataclass
from pathlib import Path

from phonograd.device_runtime.base.errors import BuildError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.native_build import elf

# Android 15 and later may use pages of 16 KiB, and then refuse segments aligned to less.
PHONE_PAGE_BYTES = 16384
PHONE_MAX_BYTES = 1_800_000  # Unicode's tables are 35 KB, masked rounds 120 KB, a third of it cryptography
EMULATOR_MAX_BYTES = 2_160_000  # x86-64 has more sets of kernels, each with the coupled cells of CIFG: 60 KB in all
# The promise of the wheel's tag, manylinux_2_17_x86_64 (PEP 600): the oldest glibc, and the libraries of glibc.
GLIBC = (2, 17)
GLIBC_LIBRARIES = frozenset({"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1"})
C_PREFIX, JAVA_PREFIX = "pg_", "Java_org_phonograd_"  # the C ABI, native methods
ANDROID_LIBRARIES = frozenset({"libc.so", "libdl.so", "libm.so"})


@dataclass(frozen=True)
class PhoneBinary:
    """A checked phone binary. page_bytes: the largest page size it runs with."""

    path: str
    bytes: int
    sha256: str
    machine: str
    page_bytes: int
    load_segments: int


@dataclass(frozen=True)
class SharedLibrary:
    """A checked shared library. glibc: the oldest release it loads with; "" for others' than Linux."""

    path: str
    bytes: int
    sha256: str
    glibc: str
    exports: tuple[str, ...]


def check_phone_binary(path: Path) -> PhoneBinary:
    """Check that any arm64 Android phone can start a file. Raises BuildError that names the fault.

    Expected: a static position-independent aarch64 program (no interpreter, no libraries), segments aligned to 16 KiB
    pages, no text relocations, no memory both writable and executable, at most 1.76 MB.
    """
    return _check_program(path, elf.EM_AARCH64, "aarch64", PHONE_MAX_BYTES)


def check_emulator_binary(path: Path) -> PhoneBinary:
    """The same for Android's emulator on a PC: x86-64, at most 2 MB."""
    return _check_program(path, elf.EM_X86_64, "x86-64", EMULATOR_MAX_BYTES)


def _check_program(path: Path, machine: int, name: str, max_bytes: int) -> PhoneBinary:
    file = elf.read_elf(path)
    require(path, file.type == elf.ET_DYN, "position-independent (ET_DYN)", f"e_type {file.type}")
    require(path, file.machine == machine, f"machine {machine} ({name})", str(file.machine))
    require(path, not file.segments_of(elf.PT_INTERP), "a static program", "an interpreter (PT_INTERP)")
    require(path, not file.needed, "a static program", f"it needs {', '.join(file.needed)} (DT_NEEDED)")
    _check_memory(path, file)
    loads = _check_pages(path, file)
    require(path, file.bytes <= max_bytes, f"at most {max_bytes:,} bytes", f"{file.bytes:,}")
    page_bytes = min(load.align for load in loads)
    return PhoneBinary(str(path), file.bytes, sha256_of_file(path), name, page_bytes, len(loads))


def check_android_library(path: Path) -> SharedLibrary:
    """Check that any Android from 8 on can load a library for apps. Raises BuildError that names the fault.

    Expected: no libraries but Android's, no thread-local storage of ELF's (Android 10 has it), segments aligned to
    16 KiB pages, no exports but Java's native methods. The linker has checked that Android has the functions.
    """
    file = elf.read_elf(path)
    require(path, file.type == elf.ET_DYN, "a shared library (ET_DYN)", f"e_type {file.type}")
    odd = sorted(set(file.needed) - ANDROID_LIBRARIES)
    require(path, not odd, "no library but Android's", f"it needs {', '.join(odd)} (DT_NEEDED)")
    require(path, not file.segments_of(elf.PT_TLS), "emulated thread-local storage", "ELF's (PT_TLS)")
    _check_memory(path, file)
    _check_pages(path, file)
    _check_exports(path, file, JAVA_PREFIX)
    return SharedLibrary(str(path), file.bytes, sha256_of_file(path), "", file.exports)


def check_host_library(path: Path) -> SharedLibrary:
    """Check that a shared library keeps the wheel's platform tag. Raises BuildError that names the fault.

    Expected: x86-64, no libraries but glibc's, no symbols of a glibc after 2.17, no exports but the C ABI and native
    methods of Java.
    """
    return _check_library(path, elf.EM_X86_64, "x86-64", "ld-linux-x86-64.so.2")


def check_arm64_library(path: Path) -> SharedLibrary:
    """The same for the library of arm64 Linux, whose first glibc is 2.17. Android's C library cannot load it."""
    return _check_library(path, elf.EM_AARCH64, "aarch64", "ld-linux-aarch64.so.1")


def _check_library(path: Path, machine: int, name: str, loader: str) -> SharedLibrary:
    file = elf.read_elf(path)
    require(path, file.type == elf.ET_DYN, "a shared library (ET_DYN)", f"e_type {file.type}")
    require(path, file.machine == machine, f"machine {machine} ({name})", str(file.machine))
    odd = sorted(set(file.needed) - GLIBC_LIBRARIES - {loader})
    require(path, not odd, "no library but glibc's", f"it needs {', '.join(odd)} (DT_NEEDED)")
    _check_memory(path, file)
    newest = (0, 0)
    for version in (name for names in file.versions.values() for name in names):
        number = _glibc_version(version)
        require(path, number is not None and number <= GLIBC, "symbols of glibc 2.17 or before", version)
        newest = max(newest, number or newest)
    _check_exports(path, file, C_PREFIX, JAVA_PREFIX)
    return SharedLibrary(str(path), file.bytes, sha256_of_file(path), "{}.{}".format(*newest), file.exports)


def _check_pages(path: Path, file: elf.ElfFile) -> tuple[elf.Segment, ...]:
    loads = file.segments_of(elf.PT_LOAD)
    require(path, bool(loads), "a LOAD segment", "none")
    for number, load in enumerate(loads):
        aligned = load.align >= PHONE_PAGE_BYTES and load.align & (load.align - 1) == 0
        require(
            path, aligned, f"LOAD segment {number}: alignment {PHONE_PAGE_BYTES} or a multiple", f"{load.align} bytes"
        )
        require(
            path,
            load.offset % load.align == load.address % load.align,
            f"LOAD segment {number}: offset and address alike modulo {load.align}",
            f"{load.offset:#x} and {load.address:#x}",
        )
    return loads


def _check_memory(path: Path, file: elf.ElfFile) -> None:
    require(path, not file.text_relocations, "code that is never written to", "text relocations (DT_TEXTREL)")
    stacks = file.segments_of(elf.PT_GNU_STACK)
    safe = bool(stacks) and not any(stack.flags & elf.PF_X for stack in stacks)
    require(path, safe, "a stack that is not executable", "PT_GNU_STACK " + ("executable" if stacks else "missing"))
    both = elf.PF_W | elf.PF_X
    mixed = any(load.flags & both == both for load in file.segments_of(elf.PT_LOAD))
    require(path, not mixed, "no memory both writable and executable", "a LOAD segment that is both")


def _check_exports(path: Path, file: elf.ElfFile, *prefixes: str) -> None:
    strangers = [name for name in file.exports if not name.startswith(prefixes)]
    expected = "exported names " + ", ".join(f"{prefix}*" for prefix in prefixes)
    require(path, bool(file.exports) and not strangers, expected, ", ".join(strangers[:3]) or "none")


def _glibc_version(name: str) -> tuple[int, int] | None:
    """(2, 14) of "GLIBC_2.14" or "GLIBC_2.2.5"; None for what is no glibc release."""
    prefix, _, number = name.partition("_")
    parts = number.split(".")
    if prefix != "GLIBC" or len(parts) < 2 or not all(part.isdigit() for part in parts):
        return None
    return int(parts[0]), int(parts[1])


def require(path: Path, good: bool, expected: str, found: str) -> None:
    """Raise BuildError unless it is good."""
    if not good:
        raise BuildError(f"{path}: {expected} expected, found {found}; build it again")
