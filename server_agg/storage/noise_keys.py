"""The noise key of the open round, in a small file: SQLite keeps deleted data in its write-ahead log.

Deleting a key overwrites its file and removes it. Copies elsewhere on the disk (snapshots, backups, the file system's
journal, spare flash blocks) are out of reach: docs/privacy.md.
"""

import os
import re
import secrets
from pathlib import Path

from phonograd.device_runtime.base.errors import StorageError
from phonograd.device_runtime.base.files import storage_errors, sync_folder, write_bytes
from phonograd.server_agg.aggregation.privacy.noise import KEY_BYTES

KEY_FILE = re.compile(r"\.?[0-9]+(\.[0-9a-f]{8}\.partial)?\Z")  # only these files are deleted


class NoiseKeys:
    """The keys in `folder`, one file per round, named by its number. Every method raises StorageError."""

    def __init__(self, folder: Path):
        self._folder = folder

    def get_or_create(self, number: int) -> bytes:
        """The key of round `number`; the same until it is deleted.

        The first call generates it with the operating system's cryptographic random source and writes it to disk.
        """
        path = self._folder / str(number)
        if not path.exists():
            write_bytes(path, secrets.token_bytes(KEY_BYTES))
        key = path.read_bytes()
        if len(key) != KEY_BYTES:
            raise StorageError(f"{path}: expected a key of {KEY_BYTES} bytes, found {len(key)}; restore the file")
        return key

    def delete_all_except(self, number: int) -> None:
        """Overwrite and remove all keys except that of round `number`."""
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
