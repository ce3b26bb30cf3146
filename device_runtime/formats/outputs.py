"""A check that work does not write to what it reads."""

from collections.abc import Iterable
from pathlib import Path

from phonograd.device_runtime.base.errors import StorageError, UsageError
from phonograd.device_runtime.formats.manifest import MANIFEST


def require_apart(output: Path, inputs: Iterable[Path], others: Iterable[Path] = (), folder: bool = False) -> None:
    """Refuse a file, or with `folder` a folder, to write that would destroy something else. Call it before any work.

    Raises UsageError if `output` is one of the same work's `inputs`, by any name, or inside a folder of them, also the
    artifacts folder of a file, or one of the `others` that it writes; StorageError if something of another kind is
    there, such as a device or a pipe.
    """
    kind = "folder" if folder else "file"
    special = _names_a_descriptor(output)
    if special or (output.exists() and not (output.is_dir() if folder else output.is_file())):
        found = "a device, a pipe or a socket"
        if not special and (output.is_file() or output.is_dir()):
            found = "a file" if output.is_file() else "a folder"
        raise StorageError(f"{output}: cannot write: a {kind} expected, found {found}; choose another place")
    within = output.resolve().parents
    for path in inputs:
        real = path.resolve()
        if _same(output, path) or real in within or (real.parent in within and (real.parent / MANIFEST).exists()):
            raise UsageError(f"{output}: cannot write: the same command reads {path}; choose another place")
    for path in others:
        if _same(output, path):
            raise UsageError(f"{output}: cannot write twice, also as {path}; choose a {kind} for each")


def _names_a_descriptor(path: Path) -> bool:
    """Return whether a new file would replace a link to what the process has open, such as /dev/stdout."""
    parent = path.parent.resolve()
    return parent == Path("/dev") or Path("/proc") in (parent, *parent.parents)


def _same(one: Path, other: Path) -> bool:
    return one.samefile(other) if one.exists() and other.exists() else one.resolve() == other.resolve()
