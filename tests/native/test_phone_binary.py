"""What check_phone_binary and check_host_library refuse, on ELF files made here."""

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phonograd.device_runtime import native_build
from phonograd.device_runtime.base.errors import BuildError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.native_build import deliver_phone_binary
from phonograd.device_runtime.native_build.checks import (
    EMULATOR_MAX_BYTES,
    PHONE_MAX_BYTES,
    check_android_library,
    check_arm64_library,
    check_emulator_binary,
    check_host_library,
    check_phone_binary,
)

LOAD, DYNAMIC, INTERP, TLS, STACK = 1, 2, 3, 7, 0x6474E551
READ, WRITE, EXECUTE = 4, 2, 1


@dataclass(frozen=True)
class Elf:
    """A small ELF file; each of `loads` is (offset, address, align, flags)."""

    type: int = 3
    machine: int = 183
    loads: tuple[tuple[int, int, int, int], ...] = ((0, 0, 16384, READ), (0x400, 0x14400, 16384, READ | EXECUTE))
    stack: int | None = READ | WRITE
    interpreter: bool = False
    thread_local: bool = False
    needed: tuple[str, ...] = ()
    dynamic: tuple[tuple[int, int], ...] = ()
    version: str = ""
    exports: tuple[str, ...] = ()
    bytes: int = 0x800
    check: Callable[[Path], object] = check_phone_binary

    def write(self, path: Path) -> Path:
        strings = b"\0" + b"".join(name.encode() + b"\0" for name in (*self.needed, self.version, *self.exports))
        at = {name: strings.index(b"\0" + name.encode() + b"\0") + 1 for name in (*self.needed, *self.exports)}
        texts, tables = 0x400, 0x500
        dynamic = [(1, at[name]) for name in self.needed] + [(5, texts), (10, len(strings)), *self.dynamic]
        if self.version:
            dynamic += [(0x6FFFFFFE, tables), (0x6FFFFFFF, 1)]
        table = b"".join(struct.pack("<QQ", *entry) for entry in [*dynamic, (0, 0)])
        segments = [(LOAD, flags, offset, address, 0x400, align) for offset, address, align, flags in self.loads]
        segments += [(LOAD, READ, texts, texts, 0x200, 16384), (DYNAMIC, READ, 0x300, 0x300, len(table), 8)]
        segments += [(INTERP, READ, 0, 0, 4, 1)] if self.interpreter else []
        segments += [(TLS, READ, 0, 0, 4, 4)] if self.thread_local else []
        segments += [] if self.stack is None else [(STACK, self.stack, 0, 0, 0, 0)]
        headers = b"".join(
            struct.pack("<IIQQQQQQ", kind, flags, offset, address, address, size, size, align)
            for kind, flags, offset, address, size, align in segments
        )
        symbols = b"".join(struct.pack("<IBBHQQ", at[name], 0x12, 0, 1, 0, 0) for name in self.exports)
        sections = struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, texts, len(strings), 0, 0, 1, 0)
        sections += struct.pack("<IIQQQQIIQQ", 0, 11, 0, 0, 0x600, len(symbols), 0, 0, 8, 24)
        start = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
        start += struct.pack(
            "<HHIQQQIHHHHHH", self.type, self.machine, 1, 0, 64, 0x700, 0, 64, 56, len(segments), 64, 2, 0
        )
        found = strings.index(self.version.encode()) if self.version else 0
        versions = struct.pack("<HHIII", 1, 1, at[self.needed[0]] if self.needed else 0, 16, 0)
        versions += struct.pack("<IHHII", 0, 0, 2, found, 0)
        data = bytearray(max(self.bytes, 0x800))
        for offset, part in ((0, start), (64, headers), (0x300, table), (texts, strings), (tables, versions)):
            data[offset : offset + len(part)] = part
        data[0x600 : 0x600 + len(symbols)] = symbols
        data[0x700 : 0x700 + len(sections)] = sections
        path.write_bytes(data)
        return path


PHONE = Elf()
EMULATOR = Elf(machine=62, check=check_emulator_binary)
HOST = Elf(machine=62, needed=("libc.so.6",), version="GLIBC_2.14", exports=("pg_step", "pg_plan"))
HOST = replace(HOST, check=check_host_library)
ARM64 = replace(HOST, machine=183, check=check_arm64_library)
ANDROID = Elf(needed=("libc.so",), exports=("Java_org_phonograd_Keyboard_open",), check=check_android_library)


def test_good_files(tmp_path: Path) -> None:
    path = PHONE.write(tmp_path / "phone")
    facts = check_phone_binary(path)
    assert (facts.bytes, facts.sha256) == (0x800, sha256_of_file(path))
    assert (facts.machine, facts.page_bytes, facts.load_segments) == ("aarch64", 16384, 3)
    assert check_emulator_binary(EMULATOR.write(path)).machine == "x86-64"
    facts = check_host_library(HOST.write(tmp_path / "lib"))
    assert (facts.glibc, facts.exports) == ("2.14", ("pg_plan", "pg_step"))
    assert check_android_library(ANDROID.write(tmp_path / "lib")).exports == ANDROID.exports
    assert check_arm64_library(ARM64.write(tmp_path / "lib")).exports == ("pg_plan", "pg_step")


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (replace(PHONE, type=2), r"position-independent \(ET_DYN\) expected, found e_type 2"),
        (replace(PHONE, machine=62), r"machine 183 \(aarch64\) expected, found 62"),
        (replace(PHONE, interpreter=True), r"a static program expected, found an interpreter \(PT_INTERP\)"),
        (replace(PHONE, needed=("libc.so", "libm.so")), "found it needs libc.so, libm.so"),
        (replace(PHONE, loads=((0, 0, 4096, READ),)), "LOAD segment 0: alignment 16384 .* found 4096"),
        (replace(PHONE, loads=((0, 0, 24576, READ),)), "LOAD segment 0: alignment 16384 .* found 24576"),
        (replace(PHONE, loads=((0, 0, 65536, READ), (0, 64, 65536, READ))), "LOAD segment 1: offset and address"),
        (replace(PHONE, loads=((0, 0, 16384, READ | WRITE | EXECUTE),)), "no memory both writable and executable"),
        (replace(PHONE, dynamic=((22, 0),)), "found text relocations"),
        (replace(PHONE, dynamic=((30, 4),)), "found text relocations"),
        (replace(PHONE, stack=READ | WRITE | EXECUTE), "a stack that is not executable expected, found .*executable"),
        (replace(PHONE, stack=None), "a stack that is not executable expected, found .*missing"),
        (replace(PHONE, bytes=PHONE_MAX_BYTES + 1), "at most 1,800,000 bytes expected, found 1,800,001"),
        (replace(EMULATOR, machine=183), r"machine 62 \(x86-64\) expected, found 183"),
        (replace(EMULATOR, loads=((0, 0, 4096, READ),)), "LOAD segment 0: alignment 16384 .* found 4096"),
        (replace(EMULATOR, bytes=EMULATOR_MAX_BYTES + 1), "at most 2,160,000 bytes expected, found 2,160,001"),
        (replace(HOST, machine=183), r"machine 62 \(x86-64\) expected, found 183"),
        (replace(HOST, needed=("libc.so.6", "libstdc++.so.6")), r"found it needs libstdc\+\+.so.6"),
        (replace(HOST, version="GLIBC_2.18"), "symbols of glibc 2.17 or before expected, found GLIBC_2.18"),
        (replace(HOST, version="GLIBC_PRIVATE"), "found GLIBC_PRIVATE"),
        (
            replace(HOST, exports=("pg_step", "malloc")),
            r"exported names pg_\*, Java_org_phonograd_\* expected, found malloc",
        ),
        (replace(HOST, exports=()), r"exported names pg_\*, Java_org_phonograd_\* expected, found none"),
        (replace(HOST, stack=None), "PT_GNU_STACK missing"),
        (replace(ARM64, machine=62), r"machine 183 \(aarch64\) expected, found 62"),
        (replace(ARM64, needed=("libc.so",)), "no library but glibc's expected, found it needs libc.so"),
        (replace(ANDROID, needed=("libc.so.6",)), "no library but Android's expected, found it needs libc.so.6"),
        (replace(ANDROID, loads=((0, 0, 4096, READ),)), "LOAD segment 0: alignment 16384 .* found 4096"),
        (replace(ANDROID, thread_local=True), r"emulated thread-local storage expected, found ELF's \(PT_TLS\)"),
        (replace(ANDROID, exports=("pg_step",)), r"exported names Java_org_phonograd_\* expected, found pg_step"),
        (replace(ANDROID, type=1), r"a shared library \(ET_DYN\) expected, found e_type 1"),
        (replace(ARM64, version="GLIBC_2.18"), "symbols of glibc 2.17 or before expected, found GLIBC_2.18"),
    ],
)
def test_a_file_that_breaks_a_promise_is_refused(tmp_path: Path, bad: Elf, message: str) -> None:
    path = bad.write(tmp_path / "phone")
    with pytest.raises(BuildError, match=f"^{path}: .*{message}"):
        bad.check(path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "cannot be read: No such file"),
        (b"", "ELF64 file expected, found b''"),
        (b"\x7fELF\x01\x01" + bytes(64), "little-endian ELF64 file expected"),
        (b"\x7fELF\x02\x02" + bytes(64), "little-endian ELF64 file expected"),
        (b"\x7fELF\x02\x01" + bytes(20), "truncated"),
    ],
)
def test_what_is_no_elf_file_is_named(tmp_path: Path, data: bytes | None, message: str) -> None:
    path = tmp_path / "phone"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(BuildError, match=f"^{path}: .*{message}"):
        check_phone_binary(path)


@given(st.integers(0, 0x7FF), st.one_of(st.none(), st.integers(0, 255)))
@settings(max_examples=300, deadline=None)
def test_damage_is_a_build_error_or_none(tmp_path_factory: pytest.TempPathFactory, at: int, byte: int | None) -> None:
    path = HOST.write(tmp_path_factory.getbasetemp() / "damaged")
    data = bytearray(path.read_bytes())
    if byte is None:
        del data[at:]
    else:
        data[at] = byte
    path.write_bytes(data)
    try:
        check_host_library(path)
    except BuildError as error:
        assert str(error).startswith(f"{path}: ")
    else:
        assert byte is not None or at >= 0x700 + 128


def test_the_wheels_binary_is_copied_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packaged, out = PHONE.write(tmp_path / "packaged"), tmp_path / "phonograd-phone"
    monkeypatch.setattr(native_build, "PACKAGED_PHONE_BINARY", packaged)
    delivered = deliver_phone_binary(out)
    assert (delivered.origin, delivered.binary.path) == ("prebuilt", str(out))
    assert out.read_bytes() == packaged.read_bytes()
    assert out.stat().st_mode & 0o777 == 0o755
    out.unlink()
    replace(PHONE, machine=62).write(packaged)
    with pytest.raises(BuildError, match="aarch64"):
        deliver_phone_binary(out)
    assert not out.exists()
