"""CODEC+zstd: the parts of another codec, each a zstd frame of its own. FORMAT.md, "zstd".

A part is decompressed as a stream, as far as it is read, so that a reader's memory stays a window and a tile. What a
part decompresses to is told by the file's metadata, and `UpdateFile.check` holds that against the model before a byte
is decompressed.
"""

import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import msgspec
import numpy as np
import zstandard

from phonograd.device_runtime.base.documents import Count, FieldError, parse
from phonograd.device_runtime.base.errors import UpdateError
from phonograd.device_runtime.formats.tensor_file import NUMPY_DTYPES, Array, TensorFile, TensorSpec, spec_of
from phonograd.device_runtime.update.codec import Codec, Parts, Tile

SUFFIX = "+zstd"
PARTS_KEY = "parts"  # metadata: JSON object, name of a part: [dtype, shape] before compression
Told = dict[str, tuple[str, tuple[Count, ...]]]
LEVEL = 3  # levels of quantised weights are close to random: more effort gains nothing
SOURCE_BYTES = 1 << 17  # compressed bytes read at a time
STREAMS = 2  # parts that decoders read in turns
WINDOW_BYTES = 1 << 23  # a reader holds no more of a frame than this; what RFC 8878 asks every decoder to take


@dataclass(frozen=True)
class Compressed:
    """Another codec, whose parts travel through zstd; encodes and decodes as that one does."""

    inner: Codec

    @property
    def name(self) -> str:
        """The other's name and `+zstd`."""
        return self.inner.name + SUFFIX

    def nbytes(self, specs: Iterable[TensorSpec]) -> int | None:
        """Unknown before compressing."""
        del specs
        return None

    def encode(self, spec: TensorSpec, base: Array, trained: Array, seed: int) -> dict[str, Array]:
        """See Codec.encode; `compress_parts` is for all parts of a file together."""
        return self.inner.encode(spec, base, trained, seed)

    def expects(self, spec: TensorSpec, found: Parts) -> list[TensorSpec]:
        """See Codec.expects."""
        return self.inner.expects(spec, found)

    def decode(self, spec: TensorSpec, update: Parts, base: TensorFile, seed: int) -> Iterator[Tile]:
        """See Codec.decode."""
        return self.inner.decode(spec, update, base, seed)


def compress_parts(parts: Mapping[str, Array]) -> tuple[dict[str, Array], str]:
    """Frames of all parts, U8[n] under their names, and what `PARTS_KEY` says of them."""
    compressor = zstandard.ZstdCompressor(level=LEVEL)
    specs = [spec_of(name, array) for name, array in parts.items()]
    told = json.dumps({spec.name: [spec.dtype, list(spec.shape)] for spec in specs}, separators=(",", ":"))
    return {name: _frame(compressor, array) for name, array in parts.items()}, told


def _frame(compressor: zstandard.ZstdCompressor, array: Array) -> Array:
    dense = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return np.frombuffer(compressor.compress(dense.reshape(-1).view("u1").data), "u1")


class CompressedParts:
    """Parts of a file that travelled through zstd, read as if they had not; see Parts. Not thread-safe.

    Reading forwards continues where the last read of that part ended; reading backwards starts again. Nothing is
    decompressed on opening. Raises UpdateError for metadata that do not tell of each part what it was, and, on reading,
    for a frame that is damaged, ends early, goes on after its part, or wants a window of more than WINDOW_BYTES.
    """

    def __init__(self, file: TensorFile):
        self.path: Path = file.path
        self._file = file
        self._streams: dict[str, _Stream] = {}
        try:
            told = msgspec.convert(parse(file.metadata[PARTS_KEY].encode()), Told)
        except (KeyError, FieldError, msgspec.ValidationError) as error:
            raise UpdateError(
                f"{file.path}: metadata {PARTS_KEY}: names, types and shapes expected: {error}"
            ) from error
        if odd := {dtype[:20] for dtype, _ in told.values()} - NUMPY_DTYPES.keys():
            raise UpdateError(f"{file.path}: metadata {PARTS_KEY}: types of tensors expected, found {min(odd)!r}")
        self.specs: Mapping[str, TensorSpec] = {
            name: TensorSpec(name, dtype, shape) for name, (dtype, shape) in told.items()
        }
        frames = {name for name, spec in file.specs.items() if spec.dtype == "U8" and len(spec.shape) == 1}
        if not set(file.specs) == frames == set(self.specs):
            name = sorted((set(file.specs) ^ set(self.specs)) | (set(file.specs) - frames))[0]
            raise UpdateError(f"{file.path}: {name}: a frame U8[n] that metadata {PARTS_KEY} tells of expected")

    def read(self, name: str) -> Array:
        """See TensorFile.read."""
        spec = self.specs[name]
        return self.read_range(name, 0, spec.elements).reshape(spec.shape)

    def read_range(self, name: str, start: int, stop: int) -> Array:
        """See TensorFile.read_range."""
        spec = self.specs[name]
        dtype = np.dtype(NUMPY_DTYPES[spec.dtype])
        out = np.empty(stop - start, dtype)
        stream = self._streams.pop(name, None)
        if stream is None or stream.place > start * dtype.itemsize:
            stream = _Stream(self._file, name)
        stream.skip_to(start * dtype.itemsize)
        stream.fill(out)
        if stop < spec.elements:
            self._streams = dict([*self._streams.items(), (name, stream)][-STREAMS:])
        else:
            stream.expect_end()
        return out


class _Stream:
    """One part's frame, decompressed forwards. place: bytes that came out so far."""

    def __init__(self, file: TensorFile, name: str):
        self.place = 0
        self._what = f"{file.path}: {name}"
        decompressor = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES)
        source = cast(BinaryIO, _Source(file, name))
        self._reader = decompressor.stream_reader(source, SOURCE_BYTES, read_across_frames=True)

    def skip_to(self, place: int) -> None:
        while self.place < place:
            self.fill(np.empty(min(place - self.place, SOURCE_BYTES), "u1"))

    def fill(self, out: Array) -> None:
        view = memoryview(out.view("u1").data)
        done = 0
        while done < len(view):
            count = self._read_into(view[done:])
            if count == 0:
                raise UpdateError(f"{self._what}: its zstd frame ends {len(view) - done} bytes early; send it again")
            done += count
        self.place += len(view)

    def expect_end(self) -> None:
        if self._read_into(memoryview(bytearray(1))):
            raise UpdateError(f"{self._what}: its zstd frame holds more than the {self.place} bytes of the part")

    def _read_into(self, view: memoryview) -> int:
        try:
            return self._reader.readinto(view)
        except zstandard.ZstdError as error:
            raise UpdateError(f"{self._what}: its zstd frame is damaged: {error}; send it again") from error


class _Source(io.RawIOBase):
    """The bytes of a part, from its first."""

    def __init__(self, file: TensorFile, name: str):
        self._file, self._name, self._place = file, name, 0

    def read(self, size: int = -1) -> bytes:
        left = self._file.specs[self._name].elements - self._place
        count = left if size < 0 else min(size, left)
        data = self._file.read_range(self._name, self._place, self._place + count)
        self._place += count
        return data.tobytes()
