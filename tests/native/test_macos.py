"""The engine's side for macOS, as far as Linux can tell: what check_macos_library refuses, and how threads sleep."""

import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phonograd.device_runtime.base.errors import BuildError
from phonograd.device_runtime.native_build import build_program
from phonograd.device_runtime.native_build.compiler import COMPILER_CACHE, Build, compiler_cache
from phonograd.device_runtime.native_build.macho import LC_BUILD_VERSION, LC_DYLD_INFO_ONLY, LC_SEGMENT_64, read_macho
from phonograd.device_runtime.native_build.macos import check_macos_library
from phonograd.device_runtime.native_build.targets import MACOS, NATIVE
from tests.support.waiting import PATIENCE_SECONDS

HERE = Path(__file__).parent
VISIBLE = 'extern "C" __attribute__((visibility("default"))) '
ANSWER = f"#include <stdlib.h>\n{VISIBLE}int pg_answer(int x) {{ if (x < 0) abort(); return x; }}\n"


def test_threads_take_turns_without_a_futex() -> None:
    tool = build_program("word_sleep_tool", [HERE / "word_sleep_tool.cpp"])
    done = subprocess.run([tool], capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS)
    assert done.stdout == "20000\n"


def test_what_differs_between_systems_is_in_base() -> None:
    sources = [path for path in (NATIVE / "src").rglob("*") if path.suffix in {".h", ".cpp", ".inc"}]
    named = {path.parent.name for path in sources if "__APPLE__" in path.read_text("utf-8")}
    assert named == {"base"}


@pytest.mark.build
class TestLibrary:
    """Rules for small libraries that are built here."""

    @pytest.fixture(autouse=True)
    def cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(COMPILER_CACHE, compiler_cache())
        monkeypatch.setenv("PHONOGRAD_CACHE", str(tmp_path / "cache"))

    def build(self, folder: Path, source: str, cpu: str = "arm64") -> Path:
        (folder / "src").mkdir(exist_ok=True)
        (folder / "src" / "answer.cpp").write_text(source)
        return Build("answer", MACOS[cpu], folder, (folder / "src" / "answer.cpp",), shared=True).run().path

    @pytest.mark.parametrize("cpu", MACOS)
    def test_a_good_one(self, tmp_path: Path, cpu: str) -> None:
        path = self.build(tmp_path, ANSWER, cpu)
        assert check_macos_library(path, cpu).exports[-1:] == ("pg_answer",)
        file = read_macho(path)
        assert (file.name, file.minimum, file.libraries) == (
            "@rpath/libphonograd.dylib",
            (11, 0),
            ("/usr/lib/libSystem.B.dylib",),
        )
        assert "abort" in file.imports
        with pytest.raises(BuildError, match="a library for "):
            check_macos_library(path, next(other for other in MACOS if other != cpu))

    @pytest.mark.parametrize(
        ("source", "expected"),
        [
            (
                ANSWER.replace("pg_answer", "answer"),
                r"exported names pg_\*, Java_org_phonograd_\* expected, found answer",
            ),
            (ANSWER.replace("abort()", "srand(1)"), "functions of macOS 11, as .* expected, found srand"),
            (
                f"#include <string>\n{ANSWER}{VISIBLE}const char* pg_name(int x) {{"
                "static const std::string name(static_cast<size_t>(x), 'x'); return name.c_str(); }",
                "no name that the system's C.. library has too expected, found _ZNSt3__1.*basic_string",
            ),
        ],
    )
    def test_what_a_source_makes_wrong(self, tmp_path: Path, source: str, expected: str) -> None:
        with pytest.raises(BuildError, match=expected):
            check_macos_library(self.build(tmp_path, source), "arm64")

    @pytest.mark.parametrize(
        ("change", "expected"),
        [
            (lambda data: data[:12] + b"\2" + data[13:], r"a dynamic library \(MH_DYLIB\) expected, found file type 2"),
            (
                lambda data: _at(data, LC_BUILD_VERSION, 12, 12 << 16),
                "macOS 11.0 as the minimum expected, found .*12.0",
            ),
            (lambda data: _at(data, LC_BUILD_VERSION, 8, 2), "expected, found platform 2, 11.0"),
            (lambda data: _at(data, LC_SEGMENT_64, 60, 7), "no memory both writable and executable"),
            (
                lambda data: data.replace(b"libSystem.B", b"libOthers.B"),
                "no library but libSystem expected, found /usr/lib/libOthers.B.dylib",
            ),
            (lambda data: data.replace(b"_phonograd\0", b"_phonogram\0"), "a signature of its pages"),
            (lambda data: data[:-64] + bytes(64), "a signature of its pages"),
            (lambda data: data[:2000], "truncated or malformed"),
            (lambda data: _at(data, LC_DYLD_INFO_ONLY, 40, len(data) - 5), "truncated or malformed"),
            (lambda data: b"\x7fELF" + data[4:], "a little-endian 64-bit Mach-O file expected"),
        ],
    )
    def test_what_is_wrong_with_its_bytes(
        self, tmp_path: Path, change: Callable[[bytes], bytes], expected: str
    ) -> None:
        data = self.build(tmp_path, f'{ANSWER}{VISIBLE}const char pg_text[] = "of _phonograd";\n').read_bytes()
        assert change(data) != data
        (tmp_path / "changed").write_bytes(change(data))
        with pytest.raises(BuildError, match=expected):
            check_macos_library(tmp_path / "changed", "arm64")

    def test_any_bytes_are_good_or_refused(self, tmp_path: Path) -> None:
        data, path = self.build(tmp_path, ANSWER).read_bytes(), tmp_path / "changed"

        @settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
        @given(
            st.lists(st.tuples(st.integers(0, 1500) | st.integers(0, len(data) - 1), st.integers(0, 255)), min_size=1)
        )
        def check(changes: list[tuple[int, int]]) -> None:
            changed = bytearray(data)
            for place, value in changes:
                changed[place] = value
            path.write_bytes(changed)
            try:
                check_macos_library(path, "arm64")
            except BuildError as error:
                assert str(path) in str(error)

        check()


def _at(data: bytes, command: int, offset: int, value: int) -> bytes:
    """The file with a number of its first load command of that kind changed."""
    (count,), place = struct.unpack_from("<I", data, 16), 32
    for _ in range(count):
        kind, size = struct.unpack_from("<II", data, place)
        if kind == command:
            changed = bytearray(data)
            struct.pack_into("<I", changed, place + offset, value)
            return bytes(changed)
        place += size
    raise AssertionError(f"no load command {command:#x}")
