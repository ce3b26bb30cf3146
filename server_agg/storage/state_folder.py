"""The state folder: where what the server must not lose lies.

phonograd-state                   marks it as the server's own (claiming.py)
ledger.sqlite                     rounds, models, updates, bytes
models/<sha256>.safetensors       models sent out
optimizers/<sha256>.safetensors   the server optimiser's state after the newest rounds
updates/<sha256>.safetensors      accepted updates of the open round
incoming/<id>                     uploads under way
noise/<round>                     the key of the open round's noise
drafts/                           files in the making; emptied at start
lock                              held by the one server that uses the folder
"""

import contextlib
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from phonograd.device_runtime.base.errors import StorageError
from phonograd.device_runtime.base.files import atomic_file, storage_errors, sync_folder
from phonograd.server_agg.storage.folder_claim import LEDGER, LOCK, SUBFOLDERS, claim
from phonograd.server_agg.storage.noise_keys import NoiseKeys

COPY_CHUNK_BYTES = 1 << 20
MODELS = "models"
# What this server names files by; nothing else is deleted.
BY_HASH = re.compile(r"[0-9a-f]{64}\.safetensors\Z")
BY_ID = re.compile(r"\.?[0-9a-f]{32}(\.[0-9a-f]{8}\.partial)?\Z")


class StateFolder:
    """Opens the folder for one server, making it if need be.

    Raises StorageError if another server holds it, and for one that is no state folder (`claim`).
    """

    def __init__(self, root: Path):
        self.root = root
        self._claim = claim(root)
        self.ledger = root / LEDGER
        self.models = root / MODELS
        self.optimizers = root / "optimizers"
        self.updates = root / "updates"
        self.uploads = root / "incoming"
        self._drafts = root / "drafts"
        self.noise_keys = NoiseKeys(root / "noise")
        with storage_errors(root):
            for name in SUBFOLDERS:
                (root / name).mkdir(exist_ok=True)
            self._lock = os.open(root / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise StorageError(f"{root}: another server uses this state folder; stop it or choose another") from error
        _remove_all_but(self._drafts, (), BY_ID)

    def close(self, keep: bool = True) -> None:
        """Let go of the folder. Unless `keep`, a new one leaves nothing behind: the start that made it has failed."""
        if not keep:
            self._claim.undo()
        os.close(self._lock)

    def model(self, sha256: str) -> Path:
        """Where a model lies."""
        return self.models / f"{sha256}.safetensors"

    def optimizer(self, sha256: str) -> Path:
        """Where a server optimiser's state lies."""
        return self.optimizers / f"{sha256}.safetensors"

    def update(self, sha256: str) -> Path:
        """Where an accepted update of the open round lies."""
        return self.updates / f"{sha256}.safetensors"

    def upload(self, identifier: str) -> Path:
        """Where the bytes of an upload under way lie."""
        return self.uploads / identifier

    def new_draft(self) -> Path:
        """A path in drafts/ that nobody uses."""
        return self._drafts / secrets.token_hex(16)

    def check_space(self, nbytes: int) -> None:
        """Raise StorageError unless the disk has `nbytes` free."""
        with storage_errors(self.root):
            free = shutil.disk_usage(self.root).free
        if free < nbytes:
            raise StorageError(f"{self.root}: {nbytes} bytes needed, {free} free; free space and send again")

    def copy_model(self, source: Path, sha256: str) -> int:
        """Copy a model in, atomically; its size in bytes."""
        draft = self.new_draft()
        with source.open("rb") as file, atomic_file(draft) as copy:
            shutil.copyfileobj(file, copy, COPY_CHUNK_BYTES)
            nbytes = copy.tell()
        self.move_into_place(draft, self.model(sha256))
        return nbytes

    def move_into_place(self, source: Path, target: Path) -> None:
        """Move a draft to its place and make its name durable; its bytes must be on disk."""
        with storage_errors(target):
            source.replace(target)
            sync_folder(target.parent)

    @contextlib.contextmanager
    def syncing(self, path: Path) -> Iterator[None]:
        """Make the bytes at `path` durable while the block runs; they are when it has ended without an error."""
        with ThreadPoolExecutor(1) as executor:
            synced = executor.submit(_sync_file, path)
            yield
            with storage_errors(path):
                synced.result()

    def link_into_place(self, source: Path, target: Path) -> None:
        """Give an upload, its bytes durable, a second name, durably; a target that exists has the same bytes.

        The first name stays until the ledger knows the second: a crash in between forgets neither.
        """
        with storage_errors(target):
            with contextlib.suppress(FileExistsError):
                os.link(source, target)
            sync_folder(target.parent)

    def delete_updates_except(self, hashes: Collection[str]) -> None:
        """Delete all stored updates but these."""
        _remove_all_but(self.updates, {self.update(sha256).name for sha256 in hashes}, BY_HASH)

    def delete_models_except(self, hashes: Collection[str]) -> None:
        """Delete all models but these."""
        _remove_all_but(self.models, {self.model(sha256).name for sha256 in hashes}, BY_HASH)

    def delete_optimizers_except(self, hashes: Collection[str]) -> None:
        """Delete all server optimisers' states but these."""
        _remove_all_but(self.optimizers, {self.optimizer(sha256).name for sha256 in hashes}, BY_HASH)

    def delete_uploads_except(self, identifiers: Collection[str]) -> None:
        """Delete the bytes of all uploads but these."""
        _remove_all_but(self.uploads, identifiers, BY_ID)


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_all_but(folder: Path, names: Collection[str], ours: re.Pattern[str]) -> None:
    with storage_errors(folder):
        for path in folder.iterdir():
            if path.name not in names and ours.match(path.name):
                path.unlink(missing_ok=True)
