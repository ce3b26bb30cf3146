"""Two static arm64 programs of Debian's: a shell (mksh, as Android has) and a tool box (busybox, for toybox).

The packages are fetched once into a cache folder and unpacked there; nothing is installed.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

PACKAGES = {
    "mksh": "usr/lib/aarch64-linux-musl/bin/mksh",
    "busybox-static": "bin/busybox",
}
EMULATOR = "qemu-aarch64-static"


class StandInError(Exception):
    """The stand-in phone cannot be made or reached; the message says what to do."""


def cache_folder() -> Path:
    """Where the programs stay: phone-root in $PHONOGRAD_CACHE, else in ~/.cache/phonograd."""
    named = os.environ.get("PHONOGRAD_CACHE")
    return (Path(named) if named else Path.home() / ".cache" / "phonograd") / "phone-root"


def emulator() -> Path:
    """qemu for arm64 programs, static. StandInError: it is not installed."""
    found = shutil.which(EMULATOR)
    if found is None:
        raise StandInError(f"{EMULATOR} is not installed; on Debian: apt install qemu-user-static")
    return Path(found).resolve()


def programs() -> dict[str, Path]:
    """The programs by their packages, fetched if need be. StandInError: they cannot be had, and what to run."""
    folder = cache_folder()
    found = {package: folder / package / path for package, path in PACKAGES.items()}
    for package, path in found.items():
        if not path.is_file():
            _fetch(package, folder)
    return found


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
            if not (cache / package / PACKAGES[package]).is_file():  # else another process was faster
                raise


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise StandInError(f"{command[0]} is needed to fetch Debian's arm64 packages; this is no Debian") from None
