"""An accepted update in the state folder, opened when the aggregation reads it."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from phonograd.device_runtime.base.errors import StorageError, UpdateError, WeightsError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.update.update_file import UpdateFile
from phonograd.server_agg.aggregation.strategies import Aggregation, ClientUpdate
from phonograd.server_agg.aggregation.tile_source import TileSource, rebased
from phonograd.server_agg.storage.state_folder import StateFolder
from phonograd.server_agg.storage.tables import Update


def late_base(folder: StateFolder, origin: str | None) -> Path | None:
    """Where the model is that a late update was made from; None for an update of the open round."""
    return None if origin is None else folder.fetched(folder.model(origin))


class StoredUpdate:
    """The accepted update of `row`."""

    def __init__(self, row: Update, folder: StateFolder):
        self._row = row
        self._folder = folder
        self._path = folder.update(str(row.sha256))

    @property
    def client_update(self) -> ClientUpdate:
        """The update as the aggregation sees it."""
        return ClientUpdate(str(self._row.sha256), self._row.weight or 1, self._measures, self.open)

    @property
    def _measures(self) -> Mapping[str, float]:
        measures: Mapping[str, float] = json.loads(self._row.measures or "{}")
        return measures

    def add_to(self, aggregation: Aggregation) -> None:
        """Aggregate it again, after a restart. Raises StorageError if the file has changed."""
        try:
            if (found := sha256_of_file(self._fetched())) != self._row.sha256:
                raise StorageError(f"{self._path}: changed, its SHA-256 is {found}; restore the state folder")
            with self.open() as source:
                aggregation.add(source, self._row.weight or 1, self._measures)
        except (OSError, WeightsError, UpdateError) as error:
            raise StorageError(f"{self._path}: cannot read an accepted update: {error}; restore the file") from error

    def _fetched(self) -> Path:
        return self._folder.fetched(self._path, self._folder.stored_update(self._row.id))

    @contextlib.contextmanager
    def open(self) -> Iterator[TileSource]:
        """The update's tiles."""
        its_base = late_base(self._folder, self._row.base_sha256)
        with UpdateFile(self._fetched()) as update, rebased(update, its_base) as source:
            yield source
