"""Puts an artifacts folder in its place. What it replaces is an artifacts folder and nothing else."""

import contextlib
import glob
import os
import secrets
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

from phonograd.device_runtime.base.errors import ArtifactsError
from phonograd.device_runtime.base.files import WINDOWS, lock_file, storage_errors, sync_folder
from phonograd.device_runtime.formats.manifest import MANIFEST, open_artifacts


def require_replaceable(folder: Path, overwrite: bool, inputs: Collection[Path] = ()) -> None:
    """Raise ArtifactsError if something is at `folder` that an export may not replace. Call it before the work.

    It may replace, with `overwrite`, an artifacts folder that holds no other file and none of the `inputs`.
    """
    if not folder.exists():
        return
    if not overwrite:
        raise ArtifactsError(f"{folder}: already there; choose another `out` or give `overwrite`")
    choose = "nothing was replaced; choose another `out`"
    for path in inputs:
        if path.resolve().is_relative_to(folder.resolve()):
            raise ArtifactsError(f"{folder}: holds {path}, which the export reads; {choose}")
    try:
        known = {MANIFEST, *open_artifacts(folder, verify=False).manifest.files}
    except ArtifactsError as error:
        raise ArtifactsError(
            f"{folder}: `overwrite` replaces artifacts folders only, and this is not one ({error}); {choose}"
        ) from error
    foreign = sorted(path.name for path in folder.iterdir() if path.name not in known or path.is_symlink())
    if foreign:
        raise ArtifactsError(f"{folder}: holds {foreign[0]}, which no export wrote; {choose}, or move it away")


@contextlib.contextmanager
def in_place(folder: Path, overwrite: bool, inputs: Collection[Path] = ()) -> Iterator[Path]:
    """A temporary folder for the block to fill, which is then renamed to `folder`; on any error it is removed.

    What killed exports left beside `folder` goes too. Raises ArtifactsError as `require_replaceable`, StorageError.
    """
    place = folder.resolve()  # through a symbolic link, what it points to is replaced
    with storage_errors(folder):
        _clear_up(place)
    require_replaceable(folder, overwrite, inputs)
    partial = place.with_name(f".{place.name}.{secrets.token_hex(4)}.partial")
    with storage_errors(folder):
        place.parent.mkdir(parents=True, exist_ok=True)
        partial.mkdir()
    try:
        with _lock(partial):
            yield partial
        require_replaceable(folder, overwrite, inputs)  # the work took a while
        with storage_errors(folder):
            _swap(partial, place)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _swap(partial: Path, place: Path) -> None:
    replaced = partial.with_suffix(".replaced")
    try:
        if place.exists():
            place.rename(replaced)
        partial.rename(place)
        sync_folder(place.parent)
    finally:
        if replaced.exists() and not place.exists():
            replaced.rename(place)
        shutil.rmtree(replaced, ignore_errors=True)


def _clear_up(place: Path) -> None:
    """Remove what killed exports to `place` left. An export that still runs holds the lock of its folder."""
    left = f".{glob.escape(place.name)}.????????"
    for path in place.parent.glob(f"{left}.replaced"):
        if place.exists():
            shutil.rmtree(path)
        else:
            path.rename(place)  # killed between the two renames
    for path in place.parent.glob(f"{left}.partial"):
        with contextlib.suppress(OSError), _lock(path):
            shutil.rmtree(path)


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    if WINDOWS:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        lock_file(descriptor)
        yield
    finally:
        os.close(descriptor)
