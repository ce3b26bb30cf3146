"""A small reader of ELF64 files: the facts that decide whether a phone or a host can load a file."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from phonograd.device_runtime.base.errors import BuildError

# Names and numbers of the System V ABI and its GNU extensions.
ET_DYN = 3
EM_X86_64, EM_AARCH64 = 62, 183
PT_LOAD, PT_DYNAMIC, PT_INTERP, PT_TLS, PT_GNU_STACK = 1, 2, 3, 7, 0x6474E551
PF_X, PF_W = 1, 2
DT_NEEDED, DT_STRTAB, DT_STRSZ, DT_TEXTREL, DT_FLAGS = 1, 5, 10, 22, 30
DT_VERNEED, DT_VERNEEDNUM = 0x6FFFFFFE, 0x6FFFFFFF
DF_TEXTREL = 4
SHT_DYNSYM, SHN_UNDEF, STB_LOCAL = 11, 0, 0
MAX_VERSIONS = 1000  # of one library: more means that the file is malformed


@dataclass(frozen=True)
class Segment:
    """One program header; `align` is 0 or 1 for none."""

    type: int
    flags: int
    offset: int
    address: int
    file_bytes: int
    align: int


@dataclass(frozen=True)
class ElfFile:
    """Facts from the headers and the dynamic section.

    needed: required libraries (DT_NEEDED); versions: by library, the required symbol versions ("GLIBC_2.14"); exports:
    the symbols that others can link to.
    """

    bytes: int
    type: int
    machine: int
    segments: tuple[Segment, ...]
    needed: tuple[str, ...]
    text_relocations: bool
    versions: Mapping[str, tuple[str, ...]]
    exports: tuple[str, ...]

    def segments_of(self, kind: int) -> tuple[Segment, ...]:
        """The program headers of one type."""
        return tuple(segment for segment in self.segments if segment.type == kind)


def read_elf(path: Path) -> ElfFile:
    """Read a little-endian ELF64 file. Raises BuildError if it can't be read, is not ELF64, or is truncated."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BuildError(f"{path}: cannot be read: {error.strerror or error}; build it again") from error
    if data[:6] != b"\x7fELF\x02\x01":
        raise BuildError(f"{path}: a little-endian ELF64 file expected, found {data[:6]!r}; build it again")
    try:
        return _Reader(data).read()
    except (struct.error, IndexError, ValueError) as error:
        raise BuildError(f"{path}: truncated or malformed ELF file ({error}); build it again") from error


class _Reader:
    """Reads one file's bytes; struct.error, IndexError and ValueError mean that a table points outside the file."""

    def __init__(self, data: bytes):
        self._data = data

    def _at(self, layout: str, offset: int) -> tuple[int, ...]:
        if not 0 <= offset <= len(self._data):
            raise ValueError(f"a table points to byte {offset} of {len(self._data)}")
        return struct.unpack_from("<" + layout, self._data, offset)

    def read(self) -> ElfFile:
        kind, machine, _, _, program, section, _, _, size, count, section_size, sections, _ = self._at(
            "HHIQQQIHHHHHH", 16
        )
        self._segments = [self._segment(program + size * index) for index in range(count)]
        dynamic = self._dynamic()
        strings = self._offset(dynamic[DT_STRTAB][0]) if DT_STRTAB in dynamic else 0
        flags = dynamic.get(DT_FLAGS, [0])[0]
        return ElfFile(
            bytes=len(self._data),
            type=kind,
            machine=machine,
            segments=tuple(self._segments),
            needed=tuple(self._text(strings + name) for name in dynamic.get(DT_NEEDED, [])),
            text_relocations=DT_TEXTREL in dynamic or bool(flags & DF_TEXTREL),
            versions=self._versions(dynamic, strings),
            exports=self._exports(section, section_size, sections),
        )

    def _segment(self, at: int) -> Segment:
        kind, flags, offset, address, _, file_bytes, _, align = self._at("IIQQQQQQ", at)
        if offset + file_bytes > len(self._data):
            raise ValueError(f"a segment ends at byte {offset + file_bytes} of {len(self._data)}")
        return Segment(kind, flags, offset, address, file_bytes, align)

    def _dynamic(self) -> dict[int, list[int]]:
        entries: dict[int, list[int]] = {}
        for segment in self._segments:
            if segment.type == PT_DYNAMIC:
                for at in range(segment.offset, segment.offset + segment.file_bytes, 16):
                    tag, value = self._at("QQ", at)
                    if tag == 0:
                        break
                    entries.setdefault(tag, []).append(value)
        return entries

    def _offset(self, address: int) -> int:
        for segment in self._segments:
            if segment.type == PT_LOAD and 0 <= address - segment.address < segment.file_bytes:
                return address - segment.address + segment.offset
        raise ValueError(f"address {address:#x} lies in no segment")

    def _text(self, at: int) -> str:
        return self._data[at : self._data.index(b"\0", at)].decode("ascii")

    def _versions(self, dynamic: dict[int, list[int]], strings: int) -> dict[str, tuple[str, ...]]:
        versions: dict[str, tuple[str, ...]] = {}
        if DT_VERNEED not in dynamic:
            return versions
        at = self._offset(dynamic[DT_VERNEED][0])
        for _ in range(min(dynamic.get(DT_VERNEEDNUM, [0])[0], MAX_VERSIONS)):
            _, count, library, first, following = self._at("HHIII", at)
            names, entry = [], at + first
            for _ in range(min(count, MAX_VERSIONS)):
                _, _, _, name, step = self._at("IHHII", entry)
                names.append(self._text(strings + name))
                entry += step
            versions[self._text(strings + library)] = tuple(names)
            at += following
        return versions

    def _exports(self, table: int, size: int, count: int) -> tuple[str, ...]:
        sections = [self._at("IIQQQQIIQQ", table + size * index) for index in range(count)]
        names: list[str] = []
        for _, kind, _, _, offset, length, link, *_ in sections:
            if kind == SHT_DYNSYM:
                strings = sections[link][4]
                for at in range(offset, offset + length, 24):
                    name, info, _, section, _, _ = self._at("IBBHQQ", at)
                    if section != SHN_UNDEF and info >> 4 != STB_LOCAL:
                        names.append(self._text(strings + name))
        return tuple(sorted(names))
