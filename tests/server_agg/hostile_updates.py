"""Updates as someone who means harm would write them, made from a sound one."""

import copy
import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from phonograd.device_runtime.formats.tensor_file import HEADER_CAP_BYTES


@dataclass(frozen=True)
class Parts:
    """A tensor file taken apart: header and data."""

    header: dict[str, Any]
    data: bytes

    @classmethod
    def of(cls, file: bytes) -> "Parts":
        (length,) = struct.unpack("<Q", file[:8])
        return cls(json.loads(file[8 : 8 + length]), file[8 + length :])

    def with_entry(self, entry: str, key: str, value: object) -> bytes:
        """The file with `value` as the `key` of an entry of its header."""
        header = copy.deepcopy(self.header)
        header[entry][key] = value
        return with_header(json.dumps(header).encode(), self.data)

    def overwritten(self, name: str, data: bytes) -> bytes:
        """The file with `data` as the last bytes of one tensor."""
        _, end = self.header[name]["data_offsets"]
        whole = self.data[: end - len(data)] + data + self.data[end:]
        return with_header(json.dumps(self.header).encode(), whole)


def with_header(header: bytes, data: bytes, length: int | None = None) -> bytes:
    """The file, with the right checksum at its end: what changed is to be looked at."""
    file = struct.pack("<Q", len(header) if length is None else length) + header + data[:-4]
    return file + struct.pack("<I", zlib.crc32(file))


def hostile_files(sound: bytes) -> Iterator[tuple[str, bytes]]:
    """(what is wrong, the file), some of each kind; tests of the readers list all."""
    parts = Parts.of(sound)
    header, name = json.dumps(parts.header), next(name for name in parts.header if name != "__metadata__")
    yield "a flipped bit", sound[:-8] + bytes([sound[-8] ^ 1]) + sound[-7:]  # before the checksum, which stays
    for place in (0, 7, 8, len(sound) // 2, len(sound) - 1):
        yield f"cut at {place}", sound[:place]
    yield "twice as long", sound + sound
    for length in (0, len(header) + 1, 1 << 31, (1 << 64) - 1):
        yield f"header of {length} bytes", with_header(header.encode(), parts.data, length)
    yield "header padded past the cap", with_header(header.encode() + b" " * HEADER_CAP_BYTES, parts.data)
    for what, text in (
        ("nothing", ""),
        ("a list", "[]"),
        ("deep lists", "[" * 100_000 + "]" * 100_000),
        ("deep objects", '{"a":' * 100_000 + "1" + "}" * 100_000),
        ("a number of 5000 digits", f'{{"{name}": {"1" * 5000}}}'),
        ("half a surrogate", header.replace(f'"{name}"', '"\\ud800"')),
    ):
        yield f"header: {what}", with_header(text.encode(), parts.data)
    for key in ("format", "version", "base_sha256", "round", "tokens", "codec", "seed"):
        for wrong in ("", "x" * 100_000, "\0", "../../etc/passwd", "-1", 1, None, ["1"]):
            yield f"{key} is {str(wrong)[:20]!r}", parts.with_entry("__metadata__", key, wrong)
    yield "more tokens than anyone types", parts.with_entry("__metadata__", "tokens", "9" * 18)
    yield "another model", parts.with_entry("__metadata__", "base_sha256", "0" * 64)
    for key, values in (
        ("data_offsets", ([1 << 63, 1 << 64], [-4, 0], [0], None, "0", [True, 8])),
        ("shape", ([1 << 62, 4], [1 << 32, 1 << 32], [-1], [1] * 1000, None, ["5"], [10**30])),
        ("dtype", ("F16", "O", "", None)),
    ):
        for value in values:
            yield f"{key} is {str(value)[:20]}", parts.with_entry(name, key, value)
    for number in (np.nan, np.inf, -np.inf):
        yield f"ends in {number}", parts.overwritten("decoder.bias", np.float32(number).tobytes())
