"""The bytes of uploads in progress: files of the state folder, or objects in a store, for an upload that goes on at
another server.
"""

import contextlib
import hashlib
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from phonograd.device_runtime.base.files import (
    WRITEBACK_BYTES,
    atomic_file,
    begin_writeback,
    hashed_file,
    sha256_of_file,
    storage_errors,
)
from phonograd.server_agg.refusals import RequestError
from phonograd.server_agg.shortages import within_reserve
from phonograd.server_agg.storage.ledger import Ledger, count_request
from phonograd.server_agg.storage.state_folder import StateFolder
from phonograd.server_agg.storage.stores import ObjectStore
from phonograd.server_agg.storage.tables import Chunk, Update

# Of an upload: how many bytes are stored, and when the last ones came, in seconds since 1970.
Stored = tuple[int, float]


class FileBytes:
    """A file for each upload, whose size is the offset: the two cannot disagree after a crash.

    Every method raises StorageError.
    """

    def __init__(self, folder: StateFolder):
        self._folder = folder

    def stored_bytes(self, session: Session, rows: Sequence[Update]) -> Mapping[str, Stored]:
        """What is stored of uploads in progress, by id; an upload without bytes may be left out."""
        del session
        by_id = {}
        for row in rows:
            with contextlib.suppress(FileNotFoundError):
                status = self._folder.upload(row.id).stat()
                by_id[row.id] = status.st_size, status.st_mtime
        return by_id

    def append(self, identifier: str, offset: int) -> "Sink":
        """Append to an upload of `offset` bytes. Its file is created if missing, which may take the disk a while."""
        path = self._folder.upload(identifier)
        with storage_errors(path):
            return FileSink(path, offset)

    def hash_so_far(self, identifier: str) -> Any:
        """The SHA-256 object of the bytes so far; None if the whole is hashed once it is here."""
        path = self._folder.upload(identifier)
        with storage_errors(path):  # an upload without bytes may have no file yet
            return hashed_file(path) if path.exists() else hashlib.sha256()

    def sha256(self, identifier: str) -> str:
        """The hex SHA-256 of a complete upload."""
        return sha256_of_file(self._folder.upload(identifier))

    def bring(self, identifier: str) -> None:
        """Have a complete upload at StateFolder.upload."""

    def cut(self, identifier: str, length: int) -> None:
        """Drop the bytes after `length`, where a request began."""
        path = self._folder.upload(identifier)
        with storage_errors(path), path.open("r+b") as file:
            file.truncate(length)

    def delete(self, identifier: str) -> None:
        """Delete the bytes of an upload that has ended."""
        self._folder.upload(identifier).unlink(missing_ok=True)


class FileSink:
    """The end of an upload's bytes: a file that the system writes to disk while it grows.

    counted: those of its bytes that the ledger has, with the request; a restart counts the others.
    """

    counted = 0

    def __init__(self, path: Path, offset: int):
        self._file = within_reserve(path.open("r+b" if path.exists() else "xb", buffering=0))
        self._file.seek(offset)
        self._begun = offset  # bytes of it on their way to the disk

    def write(self, data: memoryview, /) -> int:
        """Append some of these bytes, begin to write what was gathered, and return how many were appended."""
        written = self._file.write(data)
        if (stop := self._file.tell()) - self._begun >= WRITEBACK_BYTES:
            begin_writeback(self._file.fileno(), self._begun, stop)
            self._begun = stop
        return written

    def close(self) -> None:
        """End it; what was written stays."""
        self._file.close()


class ChunkBytes(FileBytes):
    """Chunks of an upload are objects in the store, and rows in the ledger, written in this order.

    A row is written only where the upload ends by then, so two servers never both append, and in one transaction with
    the count of its bytes. An object without a row, which a kill may leave, is no part of the upload.
    """

    def __init__(self, folder: StateFolder, ledger: Ledger, store: ObjectStore):
        super().__init__(folder)
        self._ledger = ledger
        self._store = store

    def stored_bytes(self, session: Session, rows: Sequence[Update]) -> Mapping[str, Stored]:
        """The sums of the chunks' rows, and when the last one was added."""
        wanted = select(Chunk.upload, func.max(Chunk.stop), func.max(Chunk.at))
        wanted = wanted.where(Chunk.upload.in_([row.id for row in rows])).group_by(Chunk.upload)
        return {upload: (stop, at) for upload, stop, at in session.execute(wanted)}

    def append(self, identifier: str, offset: int) -> "Sink":
        """Each write is a chunk."""
        return ChunkSink(self._ledger, self._store, identifier, offset)

    def hash_so_far(self, identifier: str) -> Any:
        """Other servers may have other bytes of it."""

    def sha256(self, identifier: str) -> str:
        """SHA-256 of the chunks as they are now."""
        self._join(identifier)
        return super().sha256(identifier)

    def bring(self, identifier: str) -> None:
        """Join the chunks."""
        if not self._folder.upload(identifier).exists():
            self._join(identifier)

    def _join(self, identifier: str) -> None:
        with self._ledger.reading() as session:
            names = session.scalars(select(Chunk.name).where(Chunk.upload == identifier).order_by(Chunk.start)).all()
        with atomic_file(self._folder.upload(identifier)) as file:
            for name in names:
                file.write(self._store.read(name))

    def cut(self, identifier: str, length: int) -> None:
        """Delete the chunks from there on."""
        super().delete(identifier)
        with self._ledger.writing() as session:
            session.execute(delete(Chunk).where(Chunk.upload == identifier, Chunk.stop > length))

    def delete(self, identifier: str) -> None:
        """Delete the rows, then the objects."""
        super().delete(identifier)
        with self._ledger.writing() as session:
            session.execute(delete(Chunk).where(Chunk.upload == identifier))
        folder = f"incoming/{identifier}"
        self._store.delete(f"{folder}/{name}" for name in self._store.names(folder))


class ChunkSink:
    """The end of an upload's bytes, as FileSink's: every chunk is stored, and counted, as it comes."""

    def __init__(self, ledger: Ledger, store: ObjectStore, identifier: str, offset: int):
        self._ledger = ledger
        self._store = store
        self._identifier = identifier
        self._offset = offset
        self.counted = 0

    def write(self, data: memoryview, /) -> int:
        """Store a chunk. Raises RequestError (409) if another request has added to the upload meanwhile."""
        name = f"incoming/{self._identifier}/{secrets.token_hex(8)}"
        self._store.write(bytes(data), name)
        start, stop = self._offset, self._offset + len(data)
        with self._ledger.writing() as session:
            row = session.get_one(Update, self._identifier)
            end = session.scalar(select(func.max(Chunk.stop)).where(Chunk.upload == self._identifier)) or 0
            if row.state != "receiving" or end != start:
                raise RequestError(409, "another request goes on with this upload; ask for its offset")
            count_request(session, row, len(data), requests=0 if self.counted else 1)
            session.add(Chunk(upload=self._identifier, start=start, stop=stop, name=name, at=self._ledger.clock()))
        self._offset = stop
        self.counted += len(data)
        return len(data)

    def close(self) -> None:
        """Nothing is left to do."""


Sink: TypeAlias = FileSink | ChunkSink


def upload_bytes(folder: StateFolder, ledger: Ledger) -> FileBytes:
    """Chunks if the state folder has a store elsewhere, else files."""
    store = folder.store
    return ChunkBytes(folder, ledger, store) if isinstance(store, ObjectStore) else FileBytes(folder)
