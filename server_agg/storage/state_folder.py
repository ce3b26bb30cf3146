"""The state folder: where what the server must not lose lies.

ledger.sqlite                  rounds, models, bytes
models/<sha256>.safetensors    models sent out, the newest few
updates/<sha256>.safetensors   accepted updates of the open round
incoming/                      uploads under way; emptied at start
lock                           held by the one server that uses the folder
"""

import fcntl
import os
import secrets
import shutil
from collections.abc import Collection
from pathlib import Path

from device_runtime.errors import StorageError
from device_runtime.files import atomic_file, storage_errors, sync_folder

COPY_CHUNK_BYTES = 1 << 20
LEDGER = "ledger.sqlite"


class StateFolder:
    """Opens the folder for one server, making it if need be. Raises StorageError if another server holds it."""

    def __init__(self, root: Path):
        self.root = root
        self.ledger = root / LEDGER
        self.models = root / "models"
        self.updates = root / "updates"
        self.incoming = root / "incoming"
        with storage_errors(root):
            root.mkdir(mode=0o700, parents=True, exist_ok=True)  # updates tell of what phones' owners wrote
            for folder in (self.models, self.updates, self.incoming):
                folder.mkdir(exist_ok=True)
            self._lock = os.open(root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise StorageError(
                f"{root}: another server uses this state folder; stop it or choose another --state"
            ) from error
        _remove_all_but(self.incoming, ())

    def close(self) -> None:
        """Let go of the folder."""
        os.close(self._lock)

    def model(self, sha256: str) -> Path:
        """Where a model lies."""
        return self.models / f"{sha256}.safetensors"

    def update(self, sha256: str) -> Path:
        """Where an accepted update of the open round lies."""
        return self.updates / f"{sha256}.safetensors"

    def new_incoming(self) -> Path:
        """A path in incoming/ that nobody uses."""
        return self.incoming / secrets.token_hex(16)

    def check_space(self, nbytes: int) -> None:
        """Raise StorageError unless the disk has `nbytes` free."""
        with storage_errors(self.root):
            free = shutil.disk_usage(self.root).free
        if free < nbytes:
            raise StorageError(f"{self.root}: {nbytes} bytes needed, {free} free; free space and send again")

    def copy_model(self, source: Path, sha256: str) -> int:
        """Copy a model in, atomically; its size in bytes."""
        with source.open("rb") as file, atomic_file(self.model(sha256)) as copy:
            shutil.copyfileobj(file, copy, COPY_CHUNK_BYTES)
            return copy.tell()

    def move_in(self, source: Path, target: Path) -> None:
        """Move a file of incoming/ to its place and make both its bytes and its name durable."""
        with storage_errors(target):
            descriptor = os.open(source, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            source.replace(target)
            sync_folder(target.parent)

    def keep_updates(self, hashes: Collection[str]) -> None:
        """Delete all stored updates but these."""
        _remove_all_but(self.updates, {self.update(sha256).name for sha256 in hashes})

    def keep_models(self, hashes: Collection[str]) -> None:
        """Delete all models but these."""
        _remove_all_but(self.models, {self.model(sha256).name for sha256 in hashes})


def _remove_all_but(folder: Path, names: Collection[str]) -> None:
    with storage_errors(folder):
        for path in folder.iterdir():
            if path.name not in names:
                path.unlink(missing_ok=True)
