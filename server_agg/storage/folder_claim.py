"""Which folder may become a state folder: a server deletes files in it, so it must be the server's alone."""

import contextlib
import os
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

from phonograd.device_runtime.base.errors import StorageError
from phonograd.device_runtime.base.files import lock_file, storage_errors

LEDGER = "ledger.sqlite"
MARKER = "phonograd-state"
MARKER_TEXT = "phonograd serve keeps its state in this folder and deletes files in it. Keep nothing else here.\n"
LOCK = "lock"
SUBFOLDERS = (
    "models",
    "links",
    "residuals",
    "optimizers",
    "buffers",
    "updates",
    "incoming",
    "noise",
    "closing",
    "drafts",
)


@dataclass(frozen=True)
class Claim:
    """A state folder. new: it became one just now; made: the folders that were created, outermost first."""

    root: Path
    new: bool
    made: tuple[Path, ...] = ()

    def undo(self) -> None:
        """Remove a new state folder and all that was created for it; leave an older one as it is."""
        if not self.new:
            return
        for name in (LEDGER, f"{LEDGER}-wal", f"{LEDGER}-shm", LOCK, MARKER):
            (self.root / name).unlink(missing_ok=True)
        for name in SUBFOLDERS:
            shutil.rmtree(self.root / name, ignore_errors=True)
        for folder in reversed(self.made):
            with contextlib.suppress(OSError):  # not empty: something else was put there
                folder.rmdir()


def claim(root: Path) -> Claim:
    """Make `root` a state folder: create it, or take an empty one, and write the marker file. A marked folder stays as
    it is.

    Raises StorageError, with nothing changed, for a folder that contains something else, that other users can read, or
    whose subfolders are symbolic links.
    """
    with storage_errors(root):
        made = _create(root)
        names = {path.name for path in root.iterdir()}
        marked = MARKER in names
        if names and not marked:
            found = ", ".join(sorted(names)[:3]) + (", …" if len(names) > 3 else "")
            raise StorageError(
                f"{root}: expected a state folder, an empty folder, or no folder; found {found} in it; "
                "choose another `state` folder"
            )
        for name in (*SUBFOLDERS, MARKER):
            if (root / name).is_symlink():
                raise StorageError(
                    f"{root / name}: is a symbolic link, and the server would delete files at its target; "
                    "move the whole state folder instead"
                )
        mode = root.stat().st_mode & 0o777
        if mode & 0o077:
            raise StorageError(
                f"{root}: other users can read it (mode {mode:03o}), and updates reveal what phones' users typed; "
                f"run: chmod 700 {shlex.quote(str(root))}"
            )
        if not marked:
            (root / MARKER).write_text(MARKER_TEXT, "utf-8")
    return Claim(root, not names, made)


def lock(root: Path) -> int:
    """Lock a state folder until the descriptor is closed. Raises StorageError."""
    with storage_errors(root):
        descriptor = os.open(root / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        lock_file(descriptor)
    except OSError as error:
        os.close(descriptor)
        raise StorageError(f"{root}: another server uses this state folder; stop it or choose another") from error
    return descriptor


def _create(root: Path) -> tuple[Path, ...]:
    """Create a folder with mode 700 and its missing parents. Returns the folders it created, outermost first."""
    missing = [folder for folder in (root, *root.parents) if not folder.exists()]
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    return tuple(reversed(missing))
