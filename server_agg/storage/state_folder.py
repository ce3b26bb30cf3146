"""The state folder:

phonograd-state                   marks the folder as a state folder (folder_claim.py)
ledger.sqlite                     rounds, models, updates, bytes
models/<sha256>.safetensors       models that phones can download
links/<sha256>.safetensors        links between the newest models
residuals/<sha256>.safetensors    what links up to the newest models left out
optimizers/<sha256>.safetensors   server optimizer states of the newest models
buffers/<sha256>.safetensors      the noise's memory of the current model, of dp-ftrl: secret, sealed, mode 600
updates/<sha256>.safetensors      accepted updates of the open round
incoming/<id>                     uploads in progress
noise/<round>                     the noise key of the open round, of one server (for several: shared_noise.py)
closing/<round>/                  work files of the round that is closing
drafts/                           temporary files; emptied at start
lock                              locked by the server that uses the folder

With an object store (`stores`), models, what belongs to them, and updates are copies of its objects, and only complete
uploads are in incoming/. Several servers' sums of the open round are objects: parts/<round>-<process>/<chunk>.
"""

import contextlib
import os
import re
import secrets
import shutil
import threading
from collections.abc import Collection
from pathlib import Path

from phonograd.device_runtime.base.errors import StorageError
from phonograd.device_runtime.base.files import (
    atomic_file,
    require_posix,
    sha256_of_file,
    storage_errors,
    sync_folder,
)
from phonograd.server_agg.storage.folder_claim import LEDGER, SUBFOLDERS, claim, lock
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.noise_keys import NoiseKeys
from phonograd.server_agg.storage.shared_noise import SharedNoiseKeys
from phonograd.server_agg.storage.stores import ObjectStore, Store

COPY_CHUNK_BYTES = 1 << 20
MODELS, UPDATES = "models", "updates"
# Their files' names are hashes; kept with the models that they belong to.
BY_HASH_FOLDERS = (MODELS, "links", "residuals", "optimizers", "buffers")
# The server's own file names; only these are deleted.
BY_HASH = re.compile(r"[0-9a-f]{64}\.safetensors\Z")
BY_ID = re.compile(r"\.?[0-9a-f]{32}(\.(draft|own))?(\.[0-9a-f]{8}\.partial)?\Z")


class StateFolder:
    """Opens and locks the folder for one server; creates it if missing. store: where models and updates are kept.

    Raises StorageError if another server uses it, or if it cannot be a state folder (`claim`).
    """

    def __init__(self, root: Path, store: Store | None = None):
        require_posix(f"{root}, a server's state folder")
        self.root = root
        self.store = store or Store()
        self._fetching = threading.Lock()
        self._claim = claim(root)
        self.ledger = root / LEDGER
        self.models = root / MODELS
        self.links = root / "links"
        self.residuals = root / "residuals"
        self.optimizers = root / "optimizers"
        self.buffers = root / "buffers"
        self.updates = root / UPDATES
        self.uploads = root / "incoming"
        self._closing = root / "closing"
        self._drafts = root / "drafts"
        self.noise_keys: NoiseKeys | SharedNoiseKeys = NoiseKeys(root / "noise")
        with storage_errors(root):
            for name in SUBFOLDERS:
                (root / name).mkdir(exist_ok=True)
        self._lock = lock(root)
        _remove_all_but(self._drafts, (), BY_ID)

    def share_noise_keys(self, ledger: Ledger) -> None:
        """Have, from here on, if other servers may use the ledger, the noise keys that all of them have."""
        if ledger.shared:
            self.noise_keys = SharedNoiseKeys(ledger, self.shared_store)

    @property
    def shared_store(self) -> ObjectStore:
        """The store, where several servers share it: the settings ask for an object store then."""
        assert isinstance(self.store, ObjectStore)
        return self.store

    def close(self, keep: bool = True) -> None:
        """Unlock the folder. `keep` false: remove a new one, because the start that created it failed."""
        if not keep:
            self._claim.undo()
        os.close(self._lock)

    def model(self, sha256: str) -> Path:
        """The path of a model."""
        return self.models / f"{sha256}.safetensors"

    def link(self, sha256: str) -> Path:
        """The path of a link."""
        return self.links / f"{sha256}.safetensors"

    def residual(self, sha256: str) -> Path:
        """The path of a residual."""
        return self.residuals / f"{sha256}.safetensors"

    def optimizer(self, sha256: str) -> Path:
        """The path of a server optimizer's state."""
        return self.optimizers / f"{sha256}.safetensors"

    def noise_buffers(self, sha256: str) -> Path:
        """The path of the noise buffers of a model."""
        return self.buffers / f"{sha256}.safetensors"

    def update(self, sha256: str) -> Path:
        """The path of an accepted update."""
        return self.updates / f"{sha256}.safetensors"

    def stored_update(self, identifier: str) -> str:
        """The name in the store of an update whose upload this was: no other's, so that it can be deleted."""
        return f"{UPDATES}/{identifier}"

    def upload(self, identifier: str) -> Path:
        """The path of an upload in progress."""
        return self.uploads / identifier

    def closing(self, number: int) -> Path:
        """The folder with the work files of round `number` while it is closing."""
        return self._closing / str(number)

    def new_draft(self) -> Path:
        """A new path in drafts/."""
        return self._drafts / secrets.token_hex(16)

    def check_space(self, nbytes: int) -> None:
        """Raise StorageError unless the disk has `nbytes` free."""
        with storage_errors(self.root):
            free = shutil.disk_usage(self.root).free
        if free < nbytes:
            raise StorageError(f"{self.root}: needs {nbytes} bytes, has {free} free; free space and send again")

    def kept_models(self) -> set[str]:
        """The hashes of the models that are kept."""
        return models_in(self.root, self.store)

    def has(self, path: Path) -> bool:
        """Whether a model or an optimizer's state is kept, here or in the store."""
        return path.is_file() or self.store.has(self._name(path))

    def fetch(self, path: Path, name: str | None = None) -> Path:
        """`path`, copied from the store if it is not here but there. name: of the object, if another.

        Raises StorageError if the store has another file than the hash in the file's name says.
        """
        with self._fetching:  # not the same file twice at the same time
            if path.is_file():
                return path
            draft = self.new_draft()
            try:
                if self.store.get(name or self._name(path), draft):
                    if (found := sha256_of_file(draft)) != path.stem:
                        raise StorageError(f"{name or self._name(path)}: damaged in the store, its SHA-256 is {found}")
                    with storage_errors(path):
                        if path.parent == self.buffers:
                            draft.chmod(0o600)
                        draft.replace(path)
            finally:
                draft.unlink(missing_ok=True)
        return path

    def check_content(self, path: Path) -> Path:
        """`fetched`, and its content is what its name says. Raises StorageError for a missing or a changed file."""
        try:
            found = sha256_of_file(self.fetch(path))
        except OSError as error:
            raise StorageError(f"{path}: cannot be read: {error.strerror}; restore the state folder") from error
        if found != path.stem:
            raise StorageError(f"{path}: changed, its SHA-256 is {found}; restore the state folder")
        return path

    def _name(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def copy_model(self, source: Path, sha256: str) -> int:
        """Copy a model into the folder, atomically. Returns its size in bytes."""
        draft = self.new_draft()
        with source.open("rb") as file, atomic_file(draft) as copy:
            shutil.copyfileobj(file, copy, COPY_CHUNK_BYTES)
            nbytes = copy.tell()
        self.move_into_place(draft, self.model(sha256))
        return nbytes

    def move_into_place(self, source: Path, target: Path) -> None:
        """Store a draft, and rename it to `target`, durably; its bytes must be synced. Noise buffers are secret."""
        if target.parent == self.buffers:
            with storage_errors(target):
                source.chmod(0o600)
        self.store.put(source, self._name(target))
        with storage_errors(target):
            source.replace(target)
            sync_folder(target.parent)

    def sync(self, path: Path) -> None:
        """Make the bytes of a file durable."""
        with storage_errors(path):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def link_into_place(self, source: Path, target: Path, name: str) -> None:
        """Hard-link a synced upload to `target`, durably; an existing target has the same bytes. name: in the store.

        The first name stays until the ledger has the second, so that a crash in between loses neither.
        """
        self.store.put(source, name)
        with storage_errors(target):
            with contextlib.suppress(FileExistsError):
                os.link(source, target)
            sync_folder(target.parent)

    def delete_updates_except(self, hashes: Collection[str]) -> None:
        """Delete all stored updates except these."""
        _remove_all_but(self.updates, {self.update(sha256).name for sha256 in hashes}, BY_HASH)

    def delete_except(self, part: str, hashes: Collection[str]) -> None:
        """Delete all files of one of BY_HASH_FOLDERS except these."""
        _remove_all_but(self.root / part, {f"{sha256}.safetensors" for sha256 in hashes}, BY_HASH)

    def delete_closing_except(self, number: int) -> None:
        """Delete the work files of all rounds except `number`."""
        with storage_errors(self._closing):
            for path in self._closing.iterdir():
                if path.name != str(number) and path.name.isdigit():
                    shutil.rmtree(path)

    def delete_uploads_except(self, identifiers: Collection[str]) -> None:
        """Delete all upload files except these."""
        _remove_all_but(self.uploads, identifiers, BY_ID)


def models_in(root: Path | None, store: Store) -> set[str]:
    """The hashes of the models in a store, or in the state folder `root` if that is the store."""
    if root is None or store.elsewhere:
        return {Path(name).stem for name in store.names(MODELS)}
    return {path.stem for path in (root / MODELS).glob("*.safetensors")}


def _remove_all_but(folder: Path, names: Collection[str], ours: re.Pattern[str]) -> None:
    with storage_errors(folder):
        for path in folder.iterdir():
            if path.name not in names and ours.match(path.name):
                path.unlink(missing_ok=True)
