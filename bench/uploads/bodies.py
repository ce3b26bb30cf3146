"""Bodies to upload: one update file on disk, with another header for each phone."""

import hashlib
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

from phonograd.device_runtime.base.files import HASH_CHUNK_BYTES
from phonograd.device_runtime.formats.tensor_file import TensorFile, encode_header
from phonograd.device_runtime.update.update_file import UpdateFile

CHECKSUM_BYTES = 4


@dataclass(frozen=True)
class Body:
    """`head`, bytes [offset, stop) of `path`, and `tail`, the checksum; size and hex SHA-256 of all together."""

    head: bytes
    path: Path
    offset: int
    stop: int
    tail: bytes
    nbytes: int
    sha256: str

    def whole(self) -> bytes:
        """All of it, in memory."""
        return self.head + self.path.read_bytes()[self.offset : self.stop] + self.tail


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
        metadata = self._metadata | {"seed": str(phone), "round": str(round_), "base_sha256": base_sha256}
        head = encode_header(self._specs, metadata)
        size = self._path.stat().st_size
        offset, stop = size - self._data_bytes, size - CHECKSUM_BYTES
        digest, checksum = hashlib.sha256(head), zlib.crc32(head)
        with self._path.open("rb") as file:
            file.seek(offset)
            while chunk := file.read(min(HASH_CHUNK_BYTES, stop - file.tell())):
                digest.update(chunk)
                checksum = zlib.crc32(chunk, checksum)
        tail = struct.pack("<I", checksum)
        digest.update(tail)
        return Body(head, self._path, offset, stop, tail, len(head) + self._data_bytes, digest.hexdigest())
