"""Push files that the phone does not have yet, by SHA-256, and verify them there."""

import shlex
import time
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

from phonograd.android_harness.adb.client import Adb
from phonograd.android_harness.adb.command import last_line
from phonograd.android_harness.errors import PhoneRunError, PhoneStorageError
from phonograd.android_harness.phones.query import parse_df
from phonograd.android_harness.result import Pushed, PushedFile
from phonograd.device_runtime.base.errors import StorageError
from phonograd.device_runtime.base.files import sha256_of_file

# Called with (bytes done, bytes in total, name of the file being pushed).
Progress = Callable[[int, int, str], None]

# A little core of an old phone hashes about 50 MB a second; this is far below.
HASH_BYTES_PER_SECOND = 4_000_000
HASH_SECONDS = 20.0
# Left free for Android, which warns before storage is really full.
MARGIN_BYTES = 8_000_000


def sync_files(
    adb: Adb, serial: str, folder: str, files: Mapping[str, Path], progress: Progress | None = None
) -> Pushed:
    """Make the phone have every file, by its name under `folder`; names are relative, with slashes.

    A file with different contents is removed first (storage may not hold both). The new one is pushed under a temporary
    name and renamed once its hash is verified. Only the shell user can read files and folders. Raises PhoneStorageError
    if there is not enough space, PhoneLostError, StorageError for a local file.
    """
    began = time.monotonic()
    wanted = {name: _local(name, path) for name, path in files.items()}
    there = _hashes(adb, serial, folder, wanted)
    lacking = [name for name, file in wanted.items() if there.get(name) != file.sha256]
    total = sum(wanted[name].nbytes for name in lacking)
    _prepare(adb, serial, folder, lacking)
    _check_space(adb, serial, folder, total)
    done = 0
    for name in lacking:
        if progress:
            progress(done, total, name)
        _push(adb, serial, folder, name, files[name], wanted[name])
        done += wanted[name].nbytes
    if progress:
        progress(total, total, "")
    pushed = tuple(PushedFile(name, file.nbytes, file.sha256, pushed=name in lacking) for name, file in wanted.items())
    return Pushed(pushed, total, time.monotonic() - began)


def _local(name: str, path: Path) -> PushedFile:
    relative = PurePosixPath(name)
    if relative.is_absolute() or ".." in relative.parts or "\n" in name:
        raise ValueError(f"{name!r}: a name under the work folder expected")
    try:
        return PushedFile(name, path.stat().st_size, sha256_of_file(path), pushed=True)
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror}") from error


def _hashes(adb: Adb, serial: str, folder: str, wanted: Mapping[str, PushedFile]) -> dict[str, str]:
    names = " ".join(shlex.quote(f"./{name}") for name in wanted)
    seconds = HASH_SECONDS + sum(file.nbytes for file in wanted.values()) / HASH_BYTES_PER_SECOND
    # sha256sum fails for files that do not exist; its output for the others is valid.
    script = f"cd {shlex.quote(folder)} && sha256sum {names} 2>/dev/null"
    hashes = {}
    for line in adb.shell(serial, script, timeout=seconds).out.splitlines():
        digest, _, name = line.partition(" ")
        hashes[name.lstrip(" *").removeprefix("./")] = digest
    return hashes


def _prepare(adb: Adb, serial: str, folder: str, names: list[str]) -> None:
    """Make the folders, remove old contents, and record the names as pushed."""
    if not names:
        return
    places = [shlex.quote(f"{folder}/{name}") for name in names]
    parents = " ".join(sorted({shlex.quote(str(PurePosixPath(f"{folder}/{name}").parent)) for name in names}))
    noted = " ".join(shlex.quote(name) for name in names)
    done = adb.shell(
        serial,
        f"umask 077; mkdir -p {parents} && rm -f {' '.join(places)} {' '.join(place + '.part' for place in places)} && "
        f"printf '%s\\n' {noted} >>{shlex.quote(folder)}/pushed",
    )
    if done.status:
        raise PhoneStorageError(f"phone {serial}: {folder}: cannot write there: {last_line(done.err) or 'no message'}")


def _check_space(adb: Adb, serial: str, folder: str, needed: int) -> None:
    if not needed:
        return
    free = parse_df(adb.shell(serial, f"df -k {shlex.quote(folder)}").out)
    if free is not None and free < needed + MARGIN_BYTES:
        raise PhoneStorageError(
            f"phone {serial}: {(needed + MARGIN_BYTES) / 1e6:,.0f} MB of free space needed in {folder}, found "
            f"{free / 1e6:,.0f} MB; free some space on the phone"
        )


def _push(adb: Adb, serial: str, folder: str, name: str, path: Path, file: PushedFile) -> None:
    place = f"{folder}/{name}"
    adb.push(serial, path, f"{place}.part")
    quoted = shlex.quote(place)
    seconds = HASH_SECONDS + file.nbytes / HASH_BYTES_PER_SECOND
    mode = "700" if path.stat().st_mode & 0o100 else "600"  # until then, the folder's mode keeps others out
    done = adb.shell(
        serial,
        f"sha256sum {quoted}.part && chmod {mode} {quoted}.part && mv {quoted}.part {quoted}",
        timeout=seconds,
    )
    arrived = done.out[:64]
    if done.status:
        raise PhoneStorageError(f"phone {serial}: {place}: cannot be written: {last_line(done.err) or 'no message'}")
    if arrived != file.sha256:
        adb.shell(serial, f"rm -f {quoted}")
        raise PhoneRunError(
            f"phone {serial}: {name}: SHA-256 {file.sha256[:12]}… pushed, {arrived[:12]}… arrived; the cable or the "
            "phone's storage is bad, or the file changed meanwhile: try again"
        )
