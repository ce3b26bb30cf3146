"""Bodies to upload: one update file on disk, with another header for each phone."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import msgspec

from phonograd.device_runtime.base.files import HASH_CHUNK_BYTES
from phonograd.device_runtime.formats.tensor_file import TensorFile, encode_header
from phonograd.device_runtime.update.update_file import UpdateFile, UpdateInfo, metadata_of


@dataclass(frozen=True)
class Body:
    """`head` followed by the bytes of `path` from `offset` on; the size and hex SHA-256 of both together."""

    head: bytes
    path: Path
    offset: int
    nbytes: int
    sha256: str


class BodyMaker:
    """Replaces the metadata of the update at `path`: bodies for any phone and round without a file for each."""

    def __init__(self, path: Path):
        with UpdateFile(path) as update:
            self.info = update.info
        with TensorFile(path) as file:
            self._specs, self._metadata = list(file.specs.values()), file.metadata
        self._path = path
        self._data_bytes = sum(spec.nbytes for spec in self._specs)

    def body(self, phone: int, round_: int, base_sha256: str) -> Body:
        """The update as phone number `phone` would send it to that round."""
        info: UpdateInfo = msgspec.structs.replace(self.info, seed=phone, round=round_, base_sha256=base_sha256)
        metadata = self._metadata | metadata_of(info)
        head = encode_header(self._specs, metadata)
        offset = self._path.stat().st_size - self._data_bytes
        return Body(head, self._path, offset, len(head) + self._data_bytes, self._sha256(head, offset))

    def _sha256(self, head: bytes, offset: int) -> str:
        digest = hashlib.sha256(head)
        with self._path.open("rb") as file:
            file.seek(offset)
            while chunk := file.read(HASH_CHUNK_BYTES):
                digest.update(chunk)
        return digest.hexdigest()
