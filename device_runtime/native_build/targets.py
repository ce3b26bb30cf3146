"""What is compiled, and for what: the source files, the two targets, and the one set of flags."""

from dataclasses import dataclass
from pathlib import Path

# The PyPI package that brings the compiler; its version is part of what makes a build reproducible.
ZIG_VERSION = "0.17.1"
NATIVE = Path(__file__).parent.parent / "native"

# Of the tree: where an include in quotes is looked for, after the folder of the file that has it.
INCLUDE_FOLDERS = ("src", "include")

# One set for every file: kernels choose their instruction sets by function attributes. Nothing of -ffast-math: a NaN
# must be seen, and results must not depend on how the compiler felt; only math functions need not set errno.
COMPILE_FLAGS = (
    *("-std=c++17", "-O3", "-g0", "-fno-math-errno"),
    *("-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror"),
    *("-fvisibility=hidden", "-ffunction-sections", "-fdata-sections"),
    *(f"-I{folder}" for folder in INCLUDE_FOLDERS),
)
LINK_FLAGS = ("-O3", "-s", "-Wl,--gc-sections")
EXPORTS = "{ global: pg_*; local: *; };\n"


@dataclass(frozen=True)
class Target:
    """A machine that code is compiled for: zig's name of it, the least CPU, the code model, how programs link."""

    triple: str
    cpu: str
    code: str
    program: tuple[str, ...]

    @property
    def compile_flags(self) -> tuple[str, ...]:
        """What every source file is compiled with."""
        return ("-target", self.triple, f"-mcpu={self.cpu}", self.code, *COMPILE_FLAGS)

    @property
    def program_flags(self) -> tuple[str, ...]:
        """What a program is linked with."""
        return ("-target", self.triple, f"-mcpu={self.cpu}", *self.program, *LINK_FLAGS)

    @property
    def shared_flags(self) -> tuple[str, ...]:
        """What a shared library is linked with, but for its version script."""
        return ("-target", self.triple, f"-mcpu={self.cpu}", "-shared", "-fPIC", "-Wl,-z,defs", *LINK_FLAGS)


HOST = Target("x86_64-linux-gnu.2.17", "x86_64", "-fPIC", ("-pie",))
# Android 15 runs on pages of 16 KiB. zig has no -static-pie; -static -pie is the same.
PHONE = Target("aarch64-linux-musl", "generic", "-fPIE", ("-static", "-pie", "-Wl,-z,max-page-size=16384"))


def engine_sources(root: Path = NATIVE) -> tuple[Path, ...]:
    """The engine and its C ABI: src/**/*.cpp without the phone command."""
    return tuple(path for path in command_sources(root) if path.relative_to(root).parts[:2] != ("src", "phone"))


def command_sources(root: Path = NATIVE) -> tuple[Path, ...]:
    """All of src/**/*.cpp: the engine and the command `phonograd-phone`."""
    return tuple(sorted((root / "src").rglob("*.cpp")))
