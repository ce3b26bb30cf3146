"""Tensor files: the safetensors format, read by position and written as a stream.

A file is `u64 header length (little endian) | JSON header | data`. The header is checked whole before a byte of data
is used: its length against a cap of ours, every offset against the file's size, every shape against its bytes. Data is
read with `pread`, a tensor or a tile of one at a time, so memory is what the caller asks for; the safetensors library
maps the file (its pages count as resident) and writes only whole dictionaries, which is why it is not used here. The
tests hold both directions equal to it.
"""

import hashlib
import json
import math
import os
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from phonograd.device_runtime.base.documents import FieldError, Record, parse, read
from phonograd.device_runtime.base.errors import WeightsError
from phonograd.device_runtime.base.files import (
    HASH_CHUNK_BYTES,
    WRITEBACK_BYTES,
    atomic_file,
    begin_writeback,
    open_to_read,
    read_at,
)

# The largest header of ours is about 4 KB; 1 MiB leaves room for models of a thousand tensors.
HEADER_CAP_BYTES = 1 << 20
MAX_DIMENSIONS = 8
TENSOR_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,199}\Z")
# 256 Ki elements: a tile of float32 and its float64 scratch stay in a phone's or server's second-level cache.
TILE_ELEMENTS = 1 << 18

CHECKSUM = "checksum"  # U32[1], the last tensor of a file that has one: CRC-32 of all bytes of the file before it

# BF16 has no NumPy type: it is carried as its raw 16 bits.
NUMPY_DTYPES: Mapping[str, str] = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "F16": "<f2", "BF16": "<u2",
    "U32": "<u4", "I32": "<i4", "F32": "<f4", "U64": "<u8", "I64": "<i8", "F64": "<f8",
}  # fmt: skip
DTYPE_NAMES: Mapping[str, str] = {np.dtype(code).str: name for name, code in NUMPY_DTYPES.items() if name != "BF16"}

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class TensorSpec:
    """A tensor's name, safetensors dtype name and shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor's data."""
        return self.elements * np.dtype(NUMPY_DTYPES[self.dtype]).itemsize

    @property
    def row(self) -> int:
        """Elements of one row: the last dimension (1 for a scalar)."""
        return self.shape[-1] if self.shape else 1

    def __str__(self) -> str:
        return f"{self.name} {self.dtype}{list(self.shape)}"


@dataclass(frozen=True)
class WrittenFile:
    """A written file's size in bytes and the hex SHA-256 of all of it."""

    nbytes: int
    sha256: str


def spec_of(name: str, array: Array) -> TensorSpec:
    """The spec of an array. Raises WeightsError for a dtype the format lacks."""
    dtype = DTYPE_NAMES.get(array.dtype.newbyteorder("<").str)
    if dtype is None:
        raise WeightsError(f"tensor {name}: dtype {array.dtype} has no place in a tensor file")
    return TensorSpec(name, dtype, tuple(int(n) for n in array.shape))


class TensorFile:
    """A tensor file open for reading; not thread-safe for `close`, otherwise safe (reads are positional).

    start: its first byte in the file at `path`, where other tensor files may follow; None: it is all of that file.
    Raises WeightsError, on opening, for anything that is not a whole, consistent file.
    """

    def __init__(self, path: Path, start: int | None = None):
        self.path = path
        self._start = start or 0
        try:
            self._descriptor = open_to_read(path)
        except OSError as error:
            raise WeightsError(f"{path}: cannot be opened: {error.strerror}") from error
        try:
            self._opened = os.fstat(self._descriptor)
            size = self._opened.st_size - self._start
            raw, header_bytes = _read_header(path, self._descriptor, self._start, size)
            self.metadata, self.specs, self._offsets = _check_header(path, raw, size - header_bytes, start is not None)
            self._data_start = self._start + header_bytes
            self.nbytes = header_bytes + sum(spec.nbytes for spec in self.specs.values())
        except OSError as error:  # a folder, which can be opened
            os.close(self._descriptor)
            raise WeightsError(f"{path}: cannot be read as a tensor file: {error.strerror}") from error
        except BaseException:
            os.close(self._descriptor)
            raise

    def __enter__(self) -> "TensorFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; reading afterwards raises OSError."""
        os.close(self._descriptor)

    @property
    def descriptor(self) -> int:
        """The open file's, for the native library."""
        return self._descriptor

    def sha256(self) -> str:
        """Hex SHA-256 of the file that is open, whatever stands at its path by now."""
        digest = hashlib.sha256()
        at, stop = self._start, self._start + self.nbytes
        while chunk := _read(self._descriptor, min(HASH_CHUNK_BYTES, stop - at), at):
            digest.update(chunk)
            at += len(chunk)
        return digest.hexdigest()

    def require_unchanged(self) -> None:
        """Raise WeightsError if the file that is open was written to or cut short since it was opened.

        A new file that took its path is no change.
        """
        now = os.fstat(self._descriptor)
        if (now.st_size, now.st_mtime_ns) != (self._opened.st_size, self._opened.st_mtime_ns):
            raise WeightsError(f"{self.path}: was changed while it was in use; fetch it again and restart")

    def require_at_path(self) -> None:
        """Raise WeightsError if another file stands at the path by now: who opened it meanwhile has another one."""
        try:
            same = os.path.samestat(self.path.stat(), self._opened)
        except OSError:
            same = False
        if not same:
            raise WeightsError(f"{self.path}: was replaced while it was opened; start again")

    def take_checksum(self) -> None:
        """Hold the file to its checksum, its last tensor, and leave that out of `specs`.

        Raises WeightsError for a file that has none, or other bytes.
        """
        spec, last = self.specs.get(CHECKSUM), max(self._offsets.values(), default=0)
        if spec != TensorSpec(CHECKSUM, "U32", (1,)) or self._offsets[CHECKSUM] != last:
            raise WeightsError(f"{self.path}: damaged: its last tensor is not {CHECKSUM} U32[1]; send it again")
        del self.specs[CHECKSUM]
        found, at, stop = 0, self._start, self._data_start + last
        while at < stop:
            chunk = _read(self._descriptor, min(HASH_CHUNK_BYTES, stop - at), at)
            if not chunk:
                raise WeightsError(f"{self.path}: ends at byte {at}; it is truncated, send it again")
            found, at = zlib.crc32(chunk, found), at + len(chunk)
        (expected,) = struct.unpack("<I", _read(self._descriptor, 4, stop))
        if found != expected:
            raise WeightsError(
                f"{self.path}: damaged: checksum {expected:08x} expected, its bytes have {found:08x}; send it again"
            )

    def read(self, name: str) -> Array:
        """A whole tensor, freshly allocated, in its own dtype and shape. Raises WeightsError if absent."""
        spec = self._spec(name)
        return self.read_range(name, 0, spec.elements).reshape(spec.shape)

    def read_range(self, name: str, start: int, stop: int) -> Array:
        """Elements [start, stop) of a tensor seen as one dimension."""
        spec = self._spec(name)
        dtype = np.dtype(NUMPY_DTYPES[spec.dtype])
        if not 0 <= start <= stop <= spec.elements:
            raise IndexError(f"{name}: elements {start}:{stop} of {spec.elements}")
        out = np.empty(stop - start, dtype)
        _read_exactly(self.path, self._descriptor, out, self.place_of(name, start))
        return out

    def place_of(self, name: str, element: int) -> int:
        """The place in the file at `path`, in bytes, of an element of a tensor seen as one dimension."""
        spec = self._spec(name)
        return self._data_start + self._offsets[name] + element * np.dtype(NUMPY_DTYPES[spec.dtype]).itemsize

    def _spec(self, name: str) -> TensorSpec:
        if name not in self.specs:
            raise WeightsError(f"{self.path}: tensor {name} expected, found {', '.join(self.specs) or 'none'}")
        return self.specs[name]


def _read_exactly(path: Path, descriptor: int, out: Array, offset: int) -> None:
    view = out.data.cast("B") if out.size else memoryview(b"")
    done = 0
    while done < len(view):
        count = read_at(descriptor, view[done:], offset + done)
        if count == 0:
            raise WeightsError(f"{path}: ends at byte {offset + done}, {len(view) - done} bytes short; fetch it again")
        done += count


def _read(descriptor: int, length: int, offset: int) -> bytes:
    out = bytearray(length)
    return bytes(out[: read_at(descriptor, memoryview(out), offset)])


def _read_header(path: Path, descriptor: int, start: int, size: int) -> tuple[bytes, int]:
    prefix = _read(descriptor, 8, start)
    if len(prefix) < 8:
        raise WeightsError(f"{path}: {size} bytes, a tensor file has at least 8; it is truncated or not a tensor file")
    (length,) = struct.unpack("<Q", prefix)
    if length > HEADER_CAP_BYTES:
        raise WeightsError(
            f"{path}: header of {length} bytes, at most {HEADER_CAP_BYTES} accepted; not a phonograd tensor file"
        )
    if 8 + length > size:
        raise WeightsError(f"{path}: header of {length} bytes in a file of {size}; it is truncated, fetch it again")
    return _read(descriptor, length, start + 8), 8 + length


def _check_header(
    path: Path, raw: bytes, data_bytes: int, followed: bool
) -> tuple[dict[str, str], dict[str, TensorSpec], dict[str, int]]:
    try:
        header = parse(raw.decode())
    except ValueError as error:
        raise WeightsError(f"{path}: header is not valid JSON ({error})") from error
    if not isinstance(header, dict):
        raise WeightsError(f"{path}: header is a JSON {type(header).__name__}, expected an object")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise WeightsError(f"{path}: __metadata__ must map names to strings")
    specs: dict[str, TensorSpec] = {}
    offsets: dict[str, int] = {}
    for name, entry in header.items():
        specs[name], offsets[name] = _check_entry(path, name, entry)
    end = 0
    for name in sorted(offsets, key=lambda key: (offsets[key], specs[key].nbytes)):
        if offsets[name] != end:
            raise WeightsError(f"{path}: tensor {name} starts at {offsets[name]}, expected {end} (a gap or an overlap)")
        end += specs[name].nbytes
    if end != data_bytes and not (followed and end < data_bytes):
        state = "truncated" if end > data_bytes else "followed by bytes that belong to no tensor"
        raise WeightsError(f"{path}: {data_bytes} bytes of data, the header describes {end}; the file is {state}")
    return metadata, specs, offsets


_Size = Annotated[int, Meta(ge=0, lt=1 << 62)]


class _Entry(Record, frozen=True):
    dtype: str
    shape: Annotated[tuple[_Size, ...], Meta(max_length=MAX_DIMENSIONS)]
    data_offsets: Annotated[tuple[_Size, ...], Meta(min_length=2, max_length=2)]


def _check_entry(path: Path, name: str, entry: object) -> tuple[TensorSpec, int]:
    if not TENSOR_NAME.match(name):
        raise WeightsError(f"{path}: tensor name {name[:80]!r} is not letters, digits, '_', '.', '-' (200 at most)")
    try:
        found = read(_Entry, entry)
    except (FieldError, RecursionError) as error:
        raise WeightsError(f"{path}: tensor {name}: {error}; expected dtype, shape and data_offsets") from error
    dtype, shape, offsets = found.dtype, found.shape, found.data_offsets
    if dtype not in NUMPY_DTYPES:
        raise WeightsError(f"{path}: tensor {name}: unknown dtype {dtype[:80]!r}")
    spec = TensorSpec(name, dtype, shape)
    # NumPy, like other readers, multiplies all sizes, so those beside a 0 are bounded too.
    if math.prod(size or 1 for size in shape) * np.dtype(NUMPY_DTYPES[dtype]).itemsize >= 1 << 63:
        raise WeightsError(f"{path}: tensor {spec}: its sizes make 2^63 bytes or more, those of 0 left out")
    if offsets[1] - offsets[0] != spec.nbytes:
        raise WeightsError(
            f"{path}: tensor {spec}: {spec.nbytes} bytes expected, data_offsets hold {offsets[1] - offsets[0]}"
        )
    return spec, offsets[0]


def encode_header(specs: Iterable[TensorSpec], metadata: Mapping[str, str]) -> bytes:
    """Length prefix and JSON header of a file that holds `specs` in that order, padded to 8 bytes.

    Metadata stand in the order of their keys: what a file says decides its bytes, in every implementation.
    """
    header: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))} if metadata else {}
    end = 0
    for spec in specs:
        header[spec.name] = {"dtype": spec.dtype, "shape": list(spec.shape), "data_offsets": [end, end + spec.nbytes]}
        end += spec.nbytes
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    return struct.pack("<Q", len(raw)) + raw


class TensorWriter:
    """Writes the data of announced tensors in order, hashing beside it in a thread; made by `write_tensor_file`."""

    def __init__(
        self, file: BinaryIO, specs: Iterable[TensorSpec], metadata: Mapping[str, str], checksum: bool = False
    ):
        specs = [*specs, *([TensorSpec(CHECKSUM, "U32", (1,))] if checksum else [])]
        self._crc = 0 if checksum else None
        self._file = file
        self._hashing = ThreadPoolExecutor(1)  # its thread starts with the first piece, and ends with this object
        self._begun = 0  # bytes on their way to the disk
        self._digest = hashlib.sha256()
        self._expected = sum(spec.nbytes for spec in specs)
        self._written = 0
        header = encode_header(specs, metadata)
        self._header_bytes = len(header)
        self._append(header)

    def write(self, array: Array) -> None:
        """Append an array's elements (little endian, C order)."""
        data = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        if data.size:
            self._append(data.data.cast("B"))
            self._written += data.nbytes

    def _append(self, data: bytes | memoryview) -> None:
        hashed = self._hashing.submit(self._digest.update, data)
        if self._crc is not None:
            self._crc = zlib.crc32(data, self._crc)
        self._file.write(data)
        if self._file.tell() - self._begun >= WRITEBACK_BYTES:
            self._file.flush()
            begin_writeback(self._file.fileno(), self._begun, self._file.tell())
            self._begun = self._file.tell()
        hashed.result()

    def finish(self) -> WrittenFile:
        """Write the checksum, if there is to be one. Raises WeightsError unless all announced bytes were written (a bug
        of the caller).
        """
        if self._crc is not None:
            self.write(np.array([self._crc], "<u4"))
        if self._written != self._expected:
            raise WeightsError(f"tensor data: {self._written} bytes written, {self._expected} announced")
        return WrittenFile(self._header_bytes + self._written, self._digest.hexdigest())


def write_tensor_file(
    path: Path,
    specs: Iterable[TensorSpec],
    chunks: Iterable[Array],
    metadata: Mapping[str, str],
    checksum: bool = False,
) -> WrittenFile:
    """Write a tensor file atomically from a stream of arrays that follow each other in the order of `specs`.

    checksum: of all of it, as one more tensor at its end.

    Raises StorageError when the disk refuses; then nothing is left at `path` that was not there before.
    """
    with atomic_file(path) as file:
        writer = TensorWriter(file, specs, metadata, checksum)
        for chunk in chunks:
            writer.write(chunk)
        return writer.finish()


def save_tensors(
    path: Path, tensors: Mapping[str, Array], metadata: Mapping[str, str] | None = None, checksum: bool = False
) -> WrittenFile:
    """Write named arrays in their order as one tensor file, atomically; checksum: as of `write_tensor_file`.

    Raises StorageError, WeightsError.
    """
    specs = [spec_of(name, array) for name, array in tensors.items()]
    return write_tensor_file(path, specs, tensors.values(), metadata or {}, checksum)


def tile_ranges(elements: int, tile: int = TILE_ELEMENTS) -> Iterator[tuple[int, int]]:
    """[start, stop) ranges that cover `elements`, each at most `tile` long."""
    for start in range(0, elements, tile):
        yield start, min(start + tile, elements)


def all_tiles(specs: Mapping[str, TensorSpec]) -> Iterator[tuple[str, int, int]]:
    """Name, start and stop of all tiles of these tensors, in their order."""
    for name, spec in specs.items():
        for start, stop in tile_ranges(spec.elements):
            yield name, start, stop


def load_tensors(path: Path) -> dict[str, Array]:
    """Read all tensors of a file. Raises WeightsError."""
    with TensorFile(path) as file:
        return {name: file.read(name) for name in file.specs}


def check_specs(what: str, found: Mapping[str, TensorSpec], expected: Iterable[TensorSpec]) -> None:
    """Raise WeightsError unless `found` holds just the `expected` names with their dtypes and shapes."""
    wanted = {spec.name: spec for spec in expected}
    for name, spec in wanted.items():
        if name not in found:
            raise WeightsError(f"{what}: tensor {spec} expected, not found")
        if found[name] != spec:
            raise WeightsError(f"{what}: tensor {spec} expected, found {found[name]}")
    extra = sorted(set(found) - set(wanted))
    if extra:
        raise WeightsError(f"{what}: tensor {extra[0]} is not part of the model ({len(extra)} unexpected)")


def check_finite(what: str, name: str, values: Array) -> None:
    """Raise WeightsError naming the first element of `values` that is NaN or infinite."""
    finite = np.isfinite(values)
    if not finite.all():
        at = int(np.argmin(finite.ravel()))
        bad = values.ravel()[at]
        raise WeightsError(f"{what}: tensor {name}: element {at} is {bad}, expected a finite number")
