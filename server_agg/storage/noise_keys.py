"""The key of the open round's noise: a small file, because in SQLite what was deleted stays in the write-ahead log.

To forget a key is to overwrite its file and remove it. What else the disk may have kept of it (a snapshot, a backup, a
journal of the file system, the spare blocks of flash) is beyond this program: docs/privacy.md.
"""

import os
import re
import secrets
from pathlib import Path

from phonograd.device_runtime.base.errors import StorageError
from phonograd.device_runtime.base.files import storage_errors, sync_folder, write_bytes
from phonograd.server_agg.aggregation.privacy.noise import KEY_BYTES

KEY_FILE = re.compile(r"\.?[0-9]+(\.[0-9a-f]{8}\.partial)?\Z")  # nothing else is deleted


class NoiseKeys:
    """The keys in `folder`, a file a round, named by its number. Every method raises StorageError."""

    def __init__(self, folder: Path):
        self._folder = folder

    def get_or_create(self, number: int) -> bytes:
        """The key of round `number`, the same until it is forgotten.

        Drawn at the first call, from the operating system's cryptographic source, and on disk before it returns.
        """
        path = self._folder / str(number)
        if not path.exists():
            write_bytes(path, secrets.token_bytes(KEY_BYTES))
        key = path.read_bytes()
        if len(key) != KEY_BYTES:
            raise StorageError(f"{path}: a key of {KEY_BYTES} bytes expected, found {len(key)}; restore it")
        return key

    def delete_all_except(self, number: int) -> None:
        """Overwrite and remove every key but that of round `number`."""
        with storage_errors(self._folder):
            keys = [path for path in self._folder.iterdir() if KEY_FILE.match(path.name)]
            old = [path for path in keys if path.name != str(number)]
            for path in old:
                with path.open("r+b") as file:
                    file.write(bytes(path.stat().st_size))
                    file.flush()
                    os.fsync(file.fileno())
                path.unlink()
            if old:
                sync_folder(self._folder)
