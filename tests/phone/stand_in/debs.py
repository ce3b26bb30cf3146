"""arm64 programs of Debian's: mksh and toybox, as Android has them, and busybox for the commands that toybox lacks.

The packages are fetched once into a cache folder and unpacked there; nothing is installed.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

# What the phone gets of each package, where Debian 12 has it; later ones have all of it below usr/. Libraries are for
# Debian's toybox, which is not static.
PACKAGES = {
    "mksh": ("usr/lib/aarch64-linux-musl/bin/mksh",),
    "toybox": ("bin/toybox",),
    "busybox-static": ("bin/busybox",),
    "libc6": (
        "lib/ld-linux-aarch64.so.1",
        "lib/aarch64-linux-gnu/libc.so.6",
        "lib/aarch64-linux-gnu/libm.so.6",
    ),
    "libcrypt1": ("lib/aarch64-linux-gnu/libcrypt.so.1",),
}
# Python and the libraries that its modules and NumPy's need, as Debian 12 has them.
PYTHON = (
    *("python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib", "libc6", "libgcc-s1", "libstdc++6"),
    *("libbz2-1.0", "libexpat1", "libffi8", "liblzma5", "libsqlite3-0", "libssl3", "libuuid1", "zlib1g"),
)
EMULATOR = "qemu-aarch64-static"


class StandInError(Exception):
    """The stand-in phone cannot be made or reached; the message says what to do."""


def cache_folder() -> Path:
    """Folder of the programs: phone-root in $PHONOGRAD_CACHE, else in ~/.cache/phonograd."""
    named = os.environ.get("PHONOGRAD_CACHE")
    return (Path(named) if named else Path.home() / ".cache" / "phonograd") / "phone-root"


def emulator() -> Path:
    """qemu for arm64 programs, static. StandInError: it is not installed."""
    found = shutil.which(EMULATOR)
    if found is None:
        raise StandInError(f"{EMULATOR} is not installed; on Debian: apt install qemu-user-static")
    return Path(found).resolve()


def programs() -> dict[str, Path]:
    """The programs and libraries by their names, fetched if need be. StandInError: what is lacking, and the cure."""
    folder = cache_folder()
    found = {}
    for package, paths in PACKAGES.items():
        if _find_files(folder / package, paths) is None:
            _fetch(package, folder)
        for path in _find_files(folder / package, paths) or _not_in(package, paths):
            found[path.name] = path
    return found


def python_line(root: Path) -> list[str]:
    """How to run arm64's Python 3.11 on this machine, with its files in the new folder `root`. Raises StandInError."""
    for package in PYTHON:
        place = cache_folder() / package
        if not place.is_dir():
            _fetch(package, cache_folder())
        shutil.copytree(place, root, symlinks=True, dirs_exist_ok=True)
    return [str(emulator()), "-L", str(root), str(root / "usr/bin/python3.11")]


def _find_files(folder: Path, paths: Sequence[str]) -> list[Path] | None:
    """Find a package's files; None unless all are there."""
    found = [next(filter(Path.is_file, (folder / path, folder / "usr" / path)), None) for path in paths]
    return [path for path in found if path is not None] if all(found) else None


def _not_in(package: str, paths: Sequence[str]) -> NoReturn:
    raise StandInError(f"{package}:arm64 of this Debian holds no {' or no '.join(paths)}: Debian 12 or later is needed")


def _fetch(package: str, cache: Path) -> None:
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="fetching-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        done = _run(["apt-get", "download", "--quiet", f"{package}:arm64"], folder)
        packages = list(folder.glob("*.deb"))
        if done.returncode != 0 or len(packages) != 1:
            said = (done.stderr.strip().splitlines() or ["apt-get said nothing"])[-1]
            raise StandInError(
                f"{package}:arm64 cannot be fetched ({said}); if apt does not know arm64, run as root: "
                "dpkg --add-architecture arm64 && apt-get update"
            )
        unpacked = folder / "unpacked"
        done = _run(["dpkg-deb", "-x", str(packages[0]), str(unpacked)], folder)
        if done.returncode != 0:
            raise StandInError(f"{packages[0].name} cannot be unpacked: {done.stderr.strip()}")
        try:
            unpacked.rename(cache / package)
        except OSError:
            if _find_files(cache / package, PACKAGES.get(package, ())) is None:  # else another process was faster
                raise


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise StandInError(f"{command[0]} is needed to fetch Debian's arm64 packages; this is no Debian") from None
