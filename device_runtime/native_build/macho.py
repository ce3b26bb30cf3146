"""A small reader of 64-bit Mach-O files: the facts that decide whether macOS can load a library."""

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from phonograd.device_runtime.base.errors import BuildError

# Names and numbers of Apple's <mach-o/loader.h>, <mach-o/nlist.h> and, for signatures, <Security/CSCommon.h>.
MH_MAGIC_64, MH_DYLIB = 0xFEEDFACF, 6
CPU_TYPES = {"arm64": 0x0100000C, "x86_64": 0x01000007}
LC_SYMTAB, LC_LOAD_DYLIB, LC_ID_DYLIB, LC_SEGMENT_64 = 0x2, 0xC, 0xD, 0x19
LC_CODE_SIGNATURE, LC_DYLD_INFO_ONLY, LC_BUILD_VERSION = 0x1D, 0x80000022, 0x32
PLATFORM_MACOS = 1
VM_PROT_WRITE, VM_PROT_EXECUTE = 2, 4
N_STAB, N_TYPE, N_EXT, N_UNDF = 0xE0, 0x0E, 0x01, 0
CSMAGIC_EMBEDDED_SIGNATURE, CSMAGIC_CODEDIRECTORY, CS_SHA256 = 0xFADE0CC0, 0xFADE0C02, 2
# dyld's bind opcodes (the upper four bits), and how many LEB128 numbers follow each.
BIND_SYMBOL, BIND_NUMBERS = 0x40, {0x20: 1, 0x60: 1, 0x70: 1, 0x80: 1, 0xA0: 1, 0xC0: 2}
MAX_NAMES, MAX_NAME = 100_000, 4096  # exported names, and their length: more means that the file is malformed
PAGE_BITS = (12, 14)  # of a signature's pages


@dataclass(frozen=True)
class MachFile:
    """Facts from the header and the load commands.

    minimum: the oldest release of the system, (11, 0); protections: of the segments; imports: by name, the library that
    has it, "" for none in particular; weak_binds: names that other libraries of the process may define instead; signed:
    it has a signature whose hashes are those of its pages.
    """

    bytes: int
    cpu: int
    type: int
    name: str
    platform: int
    minimum: tuple[int, int]
    libraries: tuple[str, ...]
    protections: tuple[int, ...]
    exports: tuple[str, ...]
    imports: Mapping[str, str]
    weak_binds: tuple[str, ...]
    signed: bool


def read_macho(path: Path) -> MachFile:
    """Read a file for one CPU. Raises BuildError if it can't be read, is not 64-bit Mach-O, or is truncated."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BuildError(f"{path}: cannot be read: {error.strerror or error}; build it again") from error
    if data[:4] != struct.pack("<I", MH_MAGIC_64):
        raise BuildError(f"{path}: a little-endian 64-bit Mach-O file expected, found {data[:4]!r}; build it again")
    try:
        return _Reader(data).read()
    except (struct.error, IndexError, ValueError) as error:
        raise BuildError(f"{path}: truncated or malformed Mach-O file ({error}); build it again") from error


class _Reader:
    """Reads one file's bytes; struct.error, IndexError and ValueError mean that a table points outside the file."""

    def __init__(self, data: bytes):
        self._data = data

    def _at(self, layout: str, offset: int) -> tuple[int, ...]:
        return struct.unpack_from(layout, self._data, offset)

    def _text(self, at: int) -> str:
        return self._data[at : self._data.index(b"\0", at)].decode("ascii")

    def _number(self, at: int) -> tuple[int, int]:
        """An unsigned LEB128 number, and where it ends."""
        value = shift = 0
        while True:
            byte = self._data[at]
            value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
            if byte < 0x80:
                return value, at

    def read(self) -> MachFile:
        _, cpu, _, kind, count, *_ = self._at("<8I", 0)
        at, commands = 32, list[tuple[int, int]]()
        for _ in range(count):
            command, size = self._at("<II", at)
            commands.append((command, at))
            at += max(8, size)
        places = dict(reversed(commands))  # the first of each kind
        libraries = [self._library(place) for command, place in commands if command == LC_LOAD_DYLIB]
        platform, minimum = self._at("<II", places[LC_BUILD_VERSION] + 8) if LC_BUILD_VERSION in places else (0, 0)
        segments = [place for command, place in commands if command == LC_SEGMENT_64]
        info = self._at("<10I", places[LC_DYLD_INFO_ONLY] + 8) if LC_DYLD_INFO_ONLY in places else (0,) * 10
        return MachFile(
            bytes=len(self._data),
            cpu=cpu,
            type=kind,
            name=self._library(places[LC_ID_DYLIB]) if LC_ID_DYLIB in places else "",
            platform=platform,
            minimum=(minimum >> 16, minimum >> 8 & 0xFF),
            libraries=tuple(libraries),
            protections=tuple(self._at("<I", place + 60)[0] for place in segments),
            exports=self._exports(*info[8:10]),
            imports=self._imports(places[LC_SYMTAB], libraries) if LC_SYMTAB in places else {},
            weak_binds=self._bound_names(*info[4:6]),
            signed=LC_CODE_SIGNATURE in places and self._is_signed(*self._at("<I", places[LC_CODE_SIGNATURE] + 8)),
        )

    def _library(self, place: int) -> str:
        return self._text(place + self._at("<I", place + 8)[0])

    def _exports(self, start: int, size: int) -> tuple[str, ...]:
        """The names of the export trie, without the underscore that C names have."""
        names, nodes, seen = [], [(start, "")] if size else [], 0
        while nodes:
            at, prefix = nodes.pop()
            seen += 1
            if seen > MAX_NAMES or len(prefix) > MAX_NAME:
                raise ValueError("an export trie without an end")
            length, at = self._number(at)
            if length:
                names.append(prefix.removeprefix("_"))
            edges, at = self._data[at + length], at + length + 1
            for _ in range(edges):
                label = self._text(at)
                child, at = self._number(at + len(label) + 1)
                nodes.append((start + child, prefix + label))
        return tuple(sorted(names))

    def _imports(self, place: int, libraries: list[str]) -> dict[str, str]:
        symbols, count, strings, _ = self._at("<4I", place + 8)
        found = {}
        for at in range(symbols, symbols + 16 * count, 16):
            name, kind, _, description = self._at("<IBBH", at)
            if not kind & N_STAB and kind & N_EXT and kind & N_TYPE == N_UNDF:
                library = description >> 8
                known = 0 < library <= len(libraries)
                found[self._text(strings + name).removeprefix("_")] = libraries[library - 1] if known else ""
        return found

    def _bound_names(self, start: int, size: int) -> tuple[str, ...]:
        names, at = set(), start
        while at < start + size:
            opcode, at = self._data[at] & 0xF0, at + 1
            if opcode == BIND_SYMBOL:
                name = self._text(at)
                names.add(name.removeprefix("_"))
                at += len(name) + 1
            for _ in range(BIND_NUMBERS.get(opcode, 0)):
                _, at = self._number(at)
        return tuple(sorted(names))

    def _is_signed(self, start: int) -> bool:
        magic, _, blobs = self._at(">3I", start)
        if magic != CSMAGIC_EMBEDDED_SIGNATURE:
            return False
        for blob in range(blobs):
            _, offset = self._at(">II", start + 12 + 8 * blob)
            place = start + offset
            magic, _, _, _, hashes, _, _, slots, limit, size, kind, _, page = self._at(">9I4B", place)
            known = magic == CSMAGIC_CODEDIRECTORY and (kind, size) == (CS_SHA256, 32) and page in PAGE_BITS
            if known and limit == start:
                pages = [self._data[at : min(at + (1 << page), limit)] for at in range(0, limit, 1 << page)]
                digests = b"".join(hashlib.sha256(one).digest() for one in pages)
                return self._data[place + hashes :][: 32 * slots] == digests
        return False
