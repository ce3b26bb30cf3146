"""Building the native engine's C++ for this host and for phones. No other module knows the compiler's flags."""

import functools
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from phonograd.device_runtime.base.files import atomic_path, storage_errors
from phonograd.device_runtime.native_build.checks import (
    PhoneBinary,
    check_android_library,
    check_arm64_library,
    check_emulator_binary,
    check_phone_binary,
)
from phonograd.device_runtime.native_build.compiler import Build, BuildResult, Progress
from phonograd.device_runtime.native_build.macos import check_macos_library
from phonograd.device_runtime.native_build.targets import (
    ANDROID,
    ARM64,
    EMULATOR,
    HOST,
    LIBRARY,
    MACOS,
    MACOS_LIBRARY,
    NATIVE,
    PHONE,
    Target,
    command_sources,
    emulator_sources,
    engine_sources,
)

COMMAND = "phonograd-phone"
# A wheel has these files; a source checkout builds them when needed.
PACKAGED_LIBRARY = NATIVE / "lib" / (MACOS_LIBRARY if sys.platform == "darwin" else LIBRARY)
PACKAGED_PHONE_BINARY = NATIVE / "lib" / COMMAND

Origin = Literal["prebuilt", "cached", "built"]


@dataclass(frozen=True)
class _Product:
    name: str
    target: Target
    sources: Callable[[Path], tuple[Path, ...]]
    shared: bool = False
    check: Callable[[Path], object] | None = None

    def __call__(
        self, out: Path | None = None, fresh: bool = False, progress: Progress | None = None, root: Path = NATIVE
    ) -> BuildResult:
        """Build and check it, at `out` or in the cache (None). Raises what `Build.run` raises."""
        built = Build(self.name, self.target, root, self.sources(root), self.shared).run(fresh, progress)
        if self.check is not None:
            self.check(built.path)
        if out is None:
            return built
        _copy(built.path, out)
        return BuildResult(out, built.cached)


# The shared library that Python loads; the C ABI's for arm64 Linux; Keyboard's for Android, by the apps' names of CPUs;
# Python's for macOS, by the names of CPUs there; the command for arm64 phones, for Android's emulator, and for this
# host, to test and benchmark it.
build_host_library = _Product(LIBRARY, HOST, engine_sources, shared=True)
build_arm64_library = _Product("libphonograd-aarch64.so", ARM64, engine_sources, True, check_arm64_library)
build_android_library = {
    abi: _Product(f"libphonograd-android-{abi}.so", target, engine_sources, True, check_android_library)
    for abi, target in ANDROID.items()
}
build_macos_library = {
    cpu: _Product(
        f"libphonograd-{cpu}.dylib", target, engine_sources, True, functools.partial(check_macos_library, cpu=cpu)
    )
    for cpu, target in MACOS.items()
}
build_phone_binary = _Product(f"{COMMAND}-aarch64", PHONE, command_sources, check=check_phone_binary)
build_emulator_binary = _Product(f"{COMMAND}-android-x86_64", EMULATOR, emulator_sources, check=check_emulator_binary)
build_host_command = _Product(f"{COMMAND}-x86_64", HOST, command_sources)


def build_program(name: str, sources: Sequence[Path], target: Target = HOST, root: Path = NATIVE) -> Path:
    """Build a program from exactly these C++ files, in the cache; for the tests' tools. Raises what `Build.run` raises.

    A file outside the tree may include headers from its own folder.
    """
    return Build(name, target, root, tuple(sources)).run().path


@dataclass(frozen=True)
class PhoneDelivery:
    """A phone binary, and whether it came with the wheel, was in the cache, or was built now."""

    binary: PhoneBinary
    origin: Origin


def deliver_phone_binary(out: Path, force: bool = False, progress: Progress | None = None) -> PhoneDelivery:
    """Write the phone binary to `out`: the wheel's if there is one, else a new build; `force` always builds.

    Raises BuildError, MissingExtraError without ziglang, StorageError.
    """
    origin: Origin = "prebuilt"
    if PACKAGED_PHONE_BINARY.is_file() and not force:
        check_phone_binary(PACKAGED_PHONE_BINARY)
        _copy(PACKAGED_PHONE_BINARY, out)
    else:
        origin = "cached" if build_phone_binary(out, force, progress).cached else "built"
    return PhoneDelivery(check_phone_binary(out), origin)


def _copy(source: Path, out: Path) -> None:
    with atomic_path(out) as partial, storage_errors(out):
        shutil.copyfile(source, partial)
        partial.chmod(0o755)
