"""Updates as someone who means harm would write them, made systematically from a sound one."""

import copy
import json
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from phonograd.device_runtime.formats.tensor_file import CHECKSUM, NUMPY_DTYPES
from phonograd.device_runtime.update.codecs import CODECS

Header = dict[str, Any]
FLOATS = ("F16", "F32", "F64")


@dataclass(frozen=True)
class Parts:
    """A tensor file taken apart: header and data."""

    header: Header
    data: bytes

    @classmethod
    def of(cls, file: bytes) -> "Parts":
        (length,) = struct.unpack("<Q", file[:8])
        return cls(json.loads(file[8 : 8 + length]), file[8 + length :])

    def tensors(self) -> list[str]:
        return [name for name in self.header if name not in ("__metadata__", CHECKSUM)]

    def file(self) -> bytes:
        return with_header(json.dumps(self.header).encode(), self.data)

    def changed(self, change: Callable[[Header], object]) -> bytes:
        header = copy.deepcopy(self.header)
        change(header)
        return with_header(json.dumps(header).encode(), self.data)

    def overwritten(self, name: str, start: int, data: bytes) -> bytes:
        """The file with bytes of one tensor replaced; `start` < 0 counts from the tensor's end."""
        first, end = self.header[name]["data_offsets"]
        at = first + start if start >= 0 else end + start
        return with_header(json.dumps(self.header).encode(), self.data[:at] + data + self.data[at + len(data) :])

    def replaced(self, name: str, part: bytes) -> bytes:
        """The file with one U8 tensor replaced by another of another length."""
        header, data, at = {"__metadata__": self.header["__metadata__"]}, b"", 0
        for other in sorted([*self.tensors(), CHECKSUM], key=lambda key: self.header[key]["data_offsets"]):
            first, end = self.header[other]["data_offsets"]
            piece = part if other == name else self.data[first:end]
            shape = [len(part)] if other == name else self.header[other]["shape"]
            header[other] = {**self.header[other], "shape": shape, "data_offsets": [at, at + len(piece)]}
            data, at = data + piece, at + len(piece)
        return with_header(json.dumps(header).encode(), data)


def with_header(header: bytes, data: bytes, length: int | None = None) -> bytes:
    """The file, with the right checksum at its end: what changed is to be looked at."""
    file = struct.pack("<Q", len(header) if length is None else length) + header + data[:-4]
    return file + struct.pack("<I", zlib.crc32(file))


def refused(sound: bytes) -> Iterator[tuple[str, bytes]]:
    """(what is wrong, the file) for what no server may take, whatever the codec."""
    parts = Parts.of(sound)
    yield "a flipped bit", sound[:-8] + bytes([sound[-8] ^ 1]) + sound[-7:]  # before the checksum, which stays
    yield from _cut(sound, parts)
    yield from _lengths(parts)
    yield from _json(parts)
    yield from _metadata(parts)
    for name in {parts.tensors()[0], parts.tensors()[-1]}:
        yield from _tensor(parts, name)


def refused_of_codec(sound: bytes) -> Iterator[tuple[str, bytes]]:
    """What is wrong with a codec's parts alone."""
    parts = Parts.of(sound)
    own = parts.header["__metadata__"]["codec"]
    for name in parts.tensors():
        dtype, (first, end) = parts.header[name]["dtype"], parts.header[name]["data_offsets"]
        if dtype in FLOATS and end > first:
            size = np.dtype(NUMPY_DTYPES[dtype]).itemsize
            for value in (np.nan, np.inf, -np.inf):
                bad = np.array(value, NUMPY_DTYPES[dtype]).tobytes()
                yield f"{own}: {name} ends in {value}", parts.overwritten(name, -size, bad)
        if dtype in ("I32", "U32", "I64", "U64") and end > first:
            for at in (0, -np.dtype(NUMPY_DTYPES[dtype]).itemsize):
                far = np.array(np.iinfo(NUMPY_DTYPES[dtype]).max, NUMPY_DTYPES[dtype]).tobytes()
                yield f"{own}: {name} has an index far out", parts.overwritten(name, at, far)


def doubtful(sound: bytes) -> Iterator[bytes]:
    """Files that may be sound all the same: parts full of one byte, or read as another codec's."""
    parts = Parts.of(sound)
    for codec in list(CODECS)[len(parts.tensors()) % 5 :: 5]:
        yield parts.changed(_sets("__metadata__", "codec", codec))
    for name in parts.tensors():
        first, end = parts.header[name]["data_offsets"]
        for byte in (b"\x00", b"\xff"):
            yield parts.overwritten(name, 0, byte * (end - first))


def _cut(sound: bytes, parts: Parts) -> Iterator[tuple[str, bytes]]:
    start = len(sound) - len(parts.data)
    ends = {start + offset for name in parts.tensors() for offset in parts.header[name]["data_offsets"]}
    places = {0, 1, 7, 8, 9, start // 2, start - 1, start, start + 1} | ends | {end - 1 for end in ends}
    for place in sorted(place for place in places if place < len(sound)):
        yield f"cut at {place}", sound[:place]
    for extra in (b"\0", b"\0" * 4, sound):
        yield f"{len(extra)} bytes behind it", sound + extra


def _lengths(parts: Parts) -> Iterator[tuple[str, bytes]]:
    header = json.dumps(parts.header).encode()
    for length in (0, 1, len(header) - 1, len(header) + 1, 100 << 20, 1 << 31, 1 << 63, (1 << 64) - 1):
        yield f"header of {length} bytes", with_header(header, parts.data, length)
    yield "header padded past the cap", with_header(header + b" " * (1 << 20), parts.data)


def _json(parts: Parts) -> Iterator[tuple[str, bytes]]:
    name = parts.tensors()[0]
    whole = json.dumps(parts.header)
    entry = json.dumps(parts.header[name])
    for what, text in (
        ("no JSON", "{"),
        ("nothing", ""),
        ("a list", "[]"),
        ("null", "null"),
        ("a text", '"header"'),
        ("a number", "1e999"),
        ("nothing in it", "{}"),
        ("deep lists", "[" * 100_000 + "]" * 100_000),
        ("deep objects", '{"a":' * 100_000 + "1" + "}" * 100_000),
        ("a tensor that is deep", whole.replace(entry, "[" * 50_000 + "]" * 50_000)),
        ("a tensor twice", whole[:-1] + f', "{name}": {entry}}}'),
        ("a dtype twice", whole.replace('{"dtype"', '{"dtype": "F32", "dtype"', 1)),
        ("a number of 5000 digits", whole.replace(entry, "1" * 5000)),
        ("NaN", whole.replace(entry, "NaN")),
        ("something behind it", whole + "{}"),
        ("metadata that is a list", '{"__metadata__": [], ' + whole[1:].split("}, ", 1)[1]),
        ("half a surrogate", whole.replace(f'"{name}"', '"\\ud800"')),
    ):
        yield f"header: {what}", with_header(text.encode(), parts.data)
    for what, raw in (("not UTF-8", b"\xff\xfe{}"), ("UTF-16", whole.encode("utf-16")), ("zeros", b"\0" * 64)):
        yield f"header: {what}", with_header(raw, parts.data)


def _sets(*path: Any) -> Callable[[Header], None]:
    """A change of a header: the last of `path` is put where the others lead."""
    *keys, last, value = path

    def change(header: Header) -> None:
        where = header
        for key in keys:
            where = where[key]
        where[last] = value

    return change


def _drops(*path: Any) -> Callable[[Header], None]:
    *keys, last = path

    def change(header: Header) -> None:
        where = header
        for key in keys:
            where = where[key]
        del where[last]

    return change


def _metadata(parts: Parts) -> Iterator[tuple[str, bytes]]:
    yield "no metadata", parts.changed(_drops("__metadata__"))
    for key in ("format", "version", "base_sha256", "round", "tokens", "codec", "seed"):
        yield f"no {key}", parts.changed(_drops("__metadata__", key))
        for wrong in ("", "x" * 100_000, "\0", "../../etc/passwd", "nan", "-1", 1, None, ["1"], {"a": "b"}):
            yield f"{key} is {str(wrong)[:20]!r}", parts.changed(_sets("__metadata__", key, wrong))
    for key in ("round", "tokens", "seed"):
        for wrong in (" 1", "1 ", "+1", "1.0", "1e3", "0x10", "1_0", "٣", "1" * 19, "9" * 5000):
            yield f"{key} is {wrong[:20]!r}", parts.changed(_sets("__metadata__", key, wrong))
    yield "no tokens", parts.changed(_sets("__metadata__", "tokens", "0"))
    yield "more tokens than anyone types", parts.changed(_sets("__metadata__", "tokens", "9" * 18))
    yield "another model", parts.changed(_sets("__metadata__", "base_sha256", "0" * 64))
    yield "another round", parts.changed(_sets("__metadata__", "round", "2"))
    yield "an unknown codec", parts.changed(_sets("__metadata__", "codec", "pickle"))


def _tensor(parts: Parts, name: str) -> Iterator[tuple[str, bytes]]:
    first, end = parts.header[name]["data_offsets"]
    shape, own = parts.header[name]["shape"], parts.header[name]["dtype"]
    offsets = (
        [first + 4, end + 4], [first - 4, end - 4], [end, first], [first, first], [first, end + 1], [-4, end],
        [first, 1 << 62], [1 << 63, 1 << 64], [first, 10**30], [first], [first, end, end], [], None, "0", [0.0, end],
        [True, end], ["0", end], {"0": 1},
    )  # fmt: skip
    for wrong in offsets:
        yield f"{name}: offsets {wrong}", parts.changed(_sets(name, "data_offsets", wrong))
    shapes = (
        [*shape, 1], [*shape, 2], [end - first], [0], [], [-1], [-1, -1], [1 << 62, 4], [1 << 32, 1 << 32], [1] * 9,
        [1] * 1000, None, "5", ["5"], [5.0], [True], [10**30], [[5]],
    )  # fmt: skip
    for wrong in shapes:
        if wrong != shape:
            yield f"{name}: shape {str(wrong)[:40]}", parts.changed(_sets(name, "shape", wrong))
    for wrong in (*NUMPY_DTYPES, "F128", "f32", "", None, 32, "O", "object", "<f4"):
        if wrong != own:
            yield f"{name}: dtype {wrong}", parts.changed(_sets(name, "dtype", wrong))
    for key in ("dtype", "shape", "data_offsets"):
        yield f"{name}: no {key}", parts.changed(_drops(name, key))
    for wrong in (None, [], "tensor", 1):
        yield f"{name}: is {wrong!r}", parts.changed(_sets(name, wrong))
    for wrong in (
        "",
        "..",
        "../../escape",
        "/etc/passwd",
        "x" * 5000,
        "na me",
        "\0",
        "名",
        "decoder.bias\n",
        name + ".",
    ):
        yield f"{name}: is called {wrong[:20]!r}", parts.changed(_renames(name, wrong))
    yield f"{name}: missing", parts.changed(_drops(name))
    more = {"dtype": own, "shape": [0], "data_offsets": [len(parts.data)] * 2}
    yield "an empty tensor more", parts.changed(_sets("more", more))
    yield "1000 empty tensors more", parts.changed(lambda header: header.update({f"t{n}": more for n in range(1000)}))


def _renames(name: str, other: str) -> Callable[[Header], None]:
    def change(header: Header) -> None:
        header[other] = header.pop(name)

    return change


def sound_updates(make: Callable[[str], Path]) -> dict[str, bytes]:
    """A sound update of each codec; `make` writes one."""
    return {codec: make(codec).read_bytes() for codec in CODECS}
