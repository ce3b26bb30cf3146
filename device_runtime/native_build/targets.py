"""The source files, the targets, and the compiler flags."""

from dataclasses import dataclass
from pathlib import Path

# The version of the PyPI package with the compiler; pinned so that builds are reproducible.
ZIG_VERSION = "0.17.1"
NATIVE = Path(__file__).parent.parent / "native"

# Search folders in the tree for quoted includes, after the including file's own folder.
INCLUDE_FOLDERS = ("src", "include")

# The same for every file: kernels choose their instruction sets by function attributes. No -ffast-math: NaN must be
# detected, and results must not depend on the compiler's choices. -fno-math-errno is safe.
COMPILE_FLAGS = (
    *("-std=c++17", "-O3", "-g0", "-fno-math-errno"),
    *("-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror"),
    *("-fvisibility=hidden", "-ffunction-sections", "-fdata-sections"),
    *(f"-I{folder}" for folder in INCLUDE_FOLDERS),
)
# Folders whose code runs once a load, a round, a step or a keystroke: small rather than fast, as phones download it.
SMALL_FOLDERS = frozenset({"capi", "engine", "graph", "personal", "phone", "round", "training"})
# Flags of our Zig sources: for size, without what needs more than memcpy and memset of the C library.
ZIG_FLAGS = (
    *("-OReleaseSmall", "-fstrip", "-fsingle-threaded", "-fno-unwind-tables", "-fno-compiler-rt"),
    *("-fno-stack-check", "-fno-stack-protector", "-ffunction-sections", "-fdata-sections"),
)
LINK_FLAGS = ("-O3", "-s", "-Wl,--gc-sections")
MACOS_LINK_FLAGS = ("-O3", "-s", "-Wl,-x", "-Wl,-dead_strip")
LIBRARY = "libphonograd.so"  # what programs that link to it look for
MACOS_LIBRARY = "libphonograd.dylib"
EXPORTS = "pg_*; Java_org_phonograd_*"  # the C ABI, and the native methods of Java's classes


@dataclass(frozen=True)
class Target:
    """A compilation target: zig's triple, the baseline CPU, the code model, and the link flags of programs.

    musl: for Android, the target whose headers stand for its own. exports: the names that a shared library shows.
    """

    triple: str
    cpu: str
    code: str
    program: tuple[str, ...]
    musl: str = ""
    exports: str = EXPORTS

    @property
    def macos(self) -> bool:
        """The target has Mach-O files, whose linker takes no version script: what is not hidden is exported."""
        return "-macos" in self.triple

    @property
    def _common(self) -> tuple[str, ...]:
        return ("-target", self.triple, f"-mcpu={self.cpu}", self.code)

    @property
    def compile_flags(self) -> tuple[str, ...]:
        """The compiler flags of every C++ file."""
        return (*self._common, *COMPILE_FLAGS)

    @property
    def zig_flags(self) -> tuple[str, ...]:
        """The flags of every Zig file."""
        return (*self._common, *ZIG_FLAGS)

    @property
    def program_flags(self) -> tuple[str, ...]:
        """The link flags of a program."""
        return ("-target", self.triple, f"-mcpu={self.cpu}", *self.program, *LINK_FLAGS)

    @property
    def shared_flags(self) -> tuple[str, ...]:
        """The link flags of a shared library, without its version script."""
        if self.macos:
            named = f"-Wl,-install_name,@rpath/{MACOS_LIBRARY}"
            return ("-target", self.triple, f"-mcpu={self.cpu}", "-shared", named, *MACOS_LINK_FLAGS)
        shared = ("-shared", "-fPIC", f"-Wl,-soname,{LIBRARY}", "-Wl,-z,defs", *(PAGES if self.musl else ()))
        return ("-target", self.triple, f"-mcpu={self.cpu}", *shared, *LINK_FLAGS)


# Android 15 runs on pages of 16 KiB.
PAGES = ("-Wl,-z,max-page-size=16384",)
HOST = Target("x86_64-linux-gnu.2.17", "x86_64", "-fPIC", ("-pie",))
# For apps on arm64 Linux that call the C ABI; not for Android, whose C library is another.
ARM64 = Target("aarch64-linux-gnu.2.17", "generic", "-fPIC", ("-pie",))
# For Python on macOS 11, the first on arm64, or later. By the names of CPUs there.
MACOS = {
    "arm64": Target("aarch64-macos.11.0", "generic", "-fPIC", ()),
    "x86_64": Target("x86_64-macos.11.0", "x86_64", "-fPIC", ()),
}
# zig has no -static-pie; -static -pie is the same.
PHONE_PROGRAM = ("-static", "-pie", *PAGES)
PHONE = Target("aarch64-linux-musl", "generic", "-fPIE", PHONE_PROGRAM)
# Android's emulator on a PC.
EMULATOR = Target("x86_64-linux-musl", "x86_64", "-fPIE", PHONE_PROGRAM)
# For apps, by the names of their folders there. 26: Android 8. The C ABI would make it more than twice as large.
ANDROID = {
    "arm64-v8a": Target(
        "aarch64-linux-android.26", "generic", "-fPIC", (), "aarch64-linux-musl", "Java_org_phonograd_*"
    ),
    "x86_64": Target("x86_64-linux-android.26", "x86_64", "-fPIC", (), "x86_64-linux-musl", "Java_org_phonograd_*"),
}


def engine_sources(root: Path = NATIVE) -> tuple[Path, ...]:
    """The engine and its C ABI: all of src/ but the phone command."""
    return tuple(path for path in command_sources(root) if path.relative_to(root).parts[:2] != ("src", "phone"))


def command_sources(root: Path = NATIVE) -> tuple[Path, ...]:
    """All of src/**/*.cpp and *.zig: the engine and the command `phonograd-phone`."""
    return tuple(sorted(path for suffix in ("cpp", "zig") for path in (root / "src").rglob(f"*.{suffix}")))


def emulator_sources(root: Path = NATIVE) -> tuple[Path, ...]:
    """The command's, and what keeps it within the system calls of Android's apps on x86-64."""
    return (*command_sources(root), root / "emulator" / "system_calls.cpp")
