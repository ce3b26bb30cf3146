"""The build on a small tree of sources, without the C++ library: quick, and independent of the engine."""

import ctypes
import importlib.metadata
import os
import re
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from phonograd.device_runtime.base.errors import BuildError, MissingExtraError, StorageError
from phonograd.device_runtime.native_build import (
    build_host_command,
    build_host_library,
    build_phone_binary,
    build_program,
)
from phonograd.device_runtime.native_build.android import make_c_library
from phonograd.device_runtime.native_build.checks import check_host_library, check_phone_binary
from phonograd.device_runtime.native_build.compiler import (
    COMPILER_CACHE,
    KEPT_SECONDS,
    BuildResult,
    cache_folder,
    compiler_cache,
    find_zig,
)
from phonograd.device_runtime.native_build.includes import Includes
from phonograd.device_runtime.native_build.targets import (
    ANDROID,
    HOST,
    NATIVE,
    PHONE,
    ZIG_VERSION,
    Target,
    command_sources,
    engine_sources,
)

pytestmark = pytest.mark.build

ROOT = Path(__file__).parents[2]
FILES = {
    "include/api.h": 'extern "C" __attribute__((visibility("default"))) int pg_answer(void);\n',
    # Visible like what the C++ library brings: it is for the list of exports to hide it.
    "src/base/number.h": "#pragma once\ninline int number() { return 41; }\n"
    '__attribute__((visibility("default"))) int helper(int x);\n',
    "src/base/helper.cpp": '#include "base/number.h"\nint helper(int x) { return x + 1; }\n',
    "src/capi.cpp": '#include "api.h"\n#include "base/number.h"\nint pg_answer(void) { return helper(number()); }\n',
    "src/phone/main.cpp": '#include <stdio.h>\n#include "api.h"\nint main() { printf("%d\\n", pg_answer()); }\n',
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(COMPILER_CACHE, compiler_cache())
    monkeypatch.setenv("PHONOGRAD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "native"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "tree"


class Seen(list[str]):
    """Hears the progress: "" as it begins, the files that were compiled or taken, then the product."""

    def __call__(self, done: int, total: int, file: str) -> None:
        self.append(file)
        assert done == len(self) - 1 <= total


def answer(library: Path) -> int:
    return int(ctypes.CDLL(str(library)).pg_answer())


def objects(cache: Path) -> set[str]:
    return {path.name for path in (cache / "objects").glob("*.o")}


def test_a_library_exports_the_c_abi_and_is_built_once(tree: Path, cache: Path) -> None:
    seen = Seen()
    built = build_host_library(progress=seen, root=tree)
    assert not built.cached
    assert seen == ["", "helper.cpp", "capi.cpp", "libphonograd.so"]  # not phone/
    assert answer(built.path) == 42
    assert check_host_library(built.path).exports == ("pg_answer",)
    again = build_host_library(progress=seen, root=tree)
    assert (again.cached, again.path, len(seen)) == (True, built.path, 4)
    assert built.path.is_relative_to(cache)


def test_what_changed_is_compiled_again(tree: Path, cache: Path) -> None:
    first = build_host_library(root=tree).path
    before = objects(cache)
    (tree / "src/base/helper.cpp").write_text('#include "base/number.h"\nint helper(int x) { return x + 2; }\n')
    assert answer(build_host_library(root=tree).path) == 43
    assert len(objects(cache) - before) == 1
    (tree / "src/base/number.h").write_text(FILES["src/base/number.h"].replace("41", "50"))
    assert answer(build_host_library(root=tree).path) == 52
    assert len(objects(cache) - before) == 3
    for name in ("src/base/helper.cpp", "src/base/number.h"):
        (tree / name).write_text(FILES[name])
    back = build_host_library(root=tree)
    assert (back.cached, back.path) == (True, first)


def test_an_edited_header_compiles_again_what_includes_it_and_nothing_else(tree: Path, cache: Path) -> None:
    (tree / "src/base/helper.cpp").write_text('#include "step.h"\nint helper(int x) { return x + STEP; }\n')
    (tree / "src/base/step.h").write_text('# include <stddef.h>\n#if 1\n\t#  include "base/size.inc"\n#endif\n')
    (tree / "src/base/size.inc").write_text("#define STEP 3\nint helper(int x);\n")
    (tree / "src/base/nobodys.h").write_text("")
    assert answer(build_host_library(root=tree).path) == 44
    before = objects(cache)
    (tree / "src/base/nobodys.h").write_text("#error nobody includes it")
    assert build_host_library(root=tree).cached
    (tree / "src/base/size.inc").write_text("#define STEP 4\nint helper(int x);\n")
    assert answer(build_host_library(root=tree).path) == 45
    assert len(objects(cache) - before) == 1
    # Now the compiler finds another one first.
    (tree / "src/base/base").mkdir()
    (tree / "src/base/base/size.inc").write_text("#define STEP 5\nint helper(int x);\n")
    assert answer(build_host_library(root=tree).path) == 46
    assert len(objects(cache) - before) == 2


@pytest.mark.parametrize("build", [build_host_library, build_phone_binary])
def test_a_source_in_zig_is_compiled_again_with_what_it_imports(
    build: Callable[..., BuildResult], tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree / "src/base/helper.cpp").write_text('extern "C" int more(int);\nint helper(int x) { return more(x); }\n')
    (tree / "src/base/more.zig").write_text(
        'const step = @import("step.zig");\nexport fn more(x: c_int) c_int {\n    return x + step.size;\n}\n'
    )
    (tree / "src/base/step.zig").write_text("pub const size = 3;\n")
    first = build(root=tree).path.read_bytes()
    (tree / "src/base/step.zig").write_text("pub const size = 4;\n")
    second = build(root=tree)
    assert second.path.read_bytes() != first
    if build is build_host_library:
        assert answer(second.path) == 45
    elsewhere = Path(shutil.copytree(tree, tmp_path / "another" / "place"))
    monkeypatch.setenv("PHONOGRAD_CACHE", str(tmp_path / "cold"))
    assert build(root=elsewhere).path.read_bytes() == second.path.read_bytes()
    (tree / "src/base/more.zig").write_text("export fn more(x: c_int) c_int {\n    return nowhere;\n}\n")
    with pytest.raises(BuildError, match=r"more.zig: does not compile for(?s:.*)src/base/more.zig:2:(?s:.*)nowhere"):
        build(root=tree)


def test_an_include_that_names_no_file_is_refused(tree: Path) -> None:
    (tree / "src/capi.cpp").write_text('#define API "api.h"\n#include API\n')
    with pytest.raises(BuildError, match=r"capi.cpp: an include of a file name expected, found '#include API'"):
        build_host_library(root=tree)


@pytest.mark.parametrize("target", [HOST, PHONE])
def test_the_compiler_includes_no_header_that_the_keys_leave_out(target: Target) -> None:
    sources = [source for source in command_sources() if source.suffix == ".cpp"][::6]
    includes = Includes(NATIVE)
    seen = 0
    for source in sources:
        line = [find_zig(), "c++", *target.compile_flags, "-MM", source.relative_to(NATIVE)]
        rule = subprocess.run(line, capture_output=True, text=True, check=True, cwd=NATIVE).stdout
        used = {NATIVE / name for name in rule.partition(":")[2].replace("\\\n", " ").split()} - {source}
        assert used <= set(includes.of(source))
        seen += len(used)
    assert seen > len(sources)


@pytest.mark.parametrize("build", [build_host_library, build_phone_binary])
def test_builds_are_the_same_bytes_wherever_they_are_made(
    build: Callable[..., BuildResult], tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = 'extern "C" __attribute__((visibility("default"))) const char* pg_where(void);\n'
    (tree / "src/where.cpp").write_text(declared + "const char* pg_where(void) { return __FILE__; }\n")
    first = build(root=tree).path.read_bytes()
    assert b"src/where.cpp" in first or build is build_phone_binary  # which calls nothing of it
    elsewhere = Path(shutil.copytree(tree, tmp_path / "another" / "place"))
    monkeypatch.setenv("PHONOGRAD_CACHE", str(tmp_path / "cold"))
    monkeypatch.setenv("CPATH", str(tmp_path))
    fresh = build(fresh=True, root=elsewhere)
    assert fresh.path.read_bytes() == first
    assert not fresh.cached
    assert not build(fresh=True, root=elsewhere).cached


def test_the_compiler_keeps_no_copies_of_its_own(tree: Path) -> None:
    name = f"odd{secrets.token_hex(8)}"
    (tree / f"src/{name}.cpp").write_text(f"int {name}() {{ return 1; }}\n")
    build_host_library(root=tree)
    kept = Path(os.environ[COMPILER_CACHE])
    assert any(kept.rglob("*.o"))
    assert not [path for path in kept.rglob("*") if name in path.name]  # or `fresh` would reuse it


def test_a_phone_binary_is_what_every_phone_starts(tree: Path, tmp_path: Path) -> None:
    built = build_phone_binary(tmp_path / "phone", root=tree)
    assert built.path == tmp_path / "phone"
    assert check_phone_binary(built.path).page_bytes == 16384
    assert os.access(built.path, os.X_OK)
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []


def test_the_phones_command_runs_on_the_host(tree: Path) -> None:
    command = build_host_command(root=tree).path
    assert subprocess.run([command], capture_output=True, check=True).stdout == b"42\n"


def test_a_program_is_its_sources_and_the_headers_beside_them(tree: Path, tmp_path: Path) -> None:
    tool = tmp_path / "tools" / "tool.cpp"
    tool.parent.mkdir()
    (tool.parent / "exit_code.h").write_text("#define EXIT_CODE 7\n")
    tool.write_text('#include "base/number.h"\n#include "exit_code.h"\nint main() { return helper(EXIT_CODE); }\n')
    sources = [tool, tree / "src/base/helper.cpp"]
    assert subprocess.run([build_program("tool", sources, root=tree)], check=False).returncode == 8
    (tool.parent / "exit_code.h").write_text("#define EXIT_CODE 9\n")
    assert subprocess.run([build_program("tool", sources, root=tree)], check=False).returncode == 10


def test_what_does_not_compile_is_named(tree: Path, cache: Path) -> None:
    (tree / "src/capi.cpp").write_text("int f(int unused) { return 1; }\nint g() { return nowhere; }\n")
    with pytest.raises(BuildError) as found:
        build_host_library(root=tree)
    first, *errors = str(found.value).splitlines()
    assert first == f"{tree / 'src/capi.cpp'}: does not compile for x86_64-linux-gnu.2.17"
    assert any("src/capi.cpp:1:" in line and "unused parameter" in line for line in errors)
    assert any("src/capi.cpp:2:" in line and "'nowhere'" in line for line in errors)
    assert not list(cache.rglob("*.partial"))
    assert not list(cache.glob("libphonograd*"))


def test_what_does_not_link_is_named(tree: Path, cache: Path) -> None:
    (tree / "src/base/helper.cpp").write_text("")
    with pytest.raises(BuildError, match=r"libphonograd.so: does not link(?s:.*)undefined symbol: helper\(int\)"):
        build_host_library(root=tree)
    assert sorted(path.name for path in cache.iterdir()) == ["objects"]


def test_builds_at_once_do_not_disturb_each_other(tree: Path, cache: Path) -> None:
    seen = [Seen() for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        begun = [pool.submit(build_host_library, progress=each, root=tree) for each in seen]
        built = [future.result() for future in begun]
    assert len({result.path for result in built}) == 1
    # One compiles; the others wait, say so, and take what it made, or come late and say nothing.
    assert all(heard in ([], [""]) for heard in sorted(seen, key=len)[:2])
    assert max(map(len, seen)) == 4
    assert answer(built[0].path) == 42
    assert not [path for path in cache.rglob("*") if path.suffix in {".partial", ".exports"}]


def test_what_no_build_asked_for_in_a_week_is_removed(tree: Path, cache: Path) -> None:
    kept = build_host_library(root=tree).path
    stale, used = cache / "stale", cache / "objects" / "stale.o"
    old = time.time() - KEPT_SECONDS - 60
    for path in (stale, used, kept):
        path.touch()
        os.utime(path, (old, old))
    assert build_host_library(root=tree).cached  # asked for: as good as new
    build_host_command(root=tree)
    assert kept.exists()
    assert not stale.exists()
    assert not used.exists()


def test_another_compiler_is_refused(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Other:
        version = "0.9.0"

    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: Other())
    with pytest.raises(BuildError, match=rf"ziglang: version {ZIG_VERSION} expected, found 0.9.0; .*pip install"):
        build_host_library(root=tree)

    def missing(name: str) -> Sequence[object]:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    with pytest.raises(MissingExtraError, match=r"pip install '\.\[build\]'"):
        build_host_library(root=tree)


def test_a_cache_that_cannot_be_made_is_named(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PHONOGRAD_CACHE", str(tmp_path / "file"))
    with pytest.raises(StorageError, match=f"{tmp_path / 'file'}.*cannot write"):
        build_host_library(root=tree)


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHONOGRAD_CACHE", "/somewhere")
    assert cache_folder() == Path("/somewhere")
    monkeypatch.delenv("PHONOGRAD_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_folder() == Path("/xdg/phonograd")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache_folder() == Path("/home/someone/.cache/phonograd")


def test_the_engine_is_all_but_the_command() -> None:
    command = set(command_sources()) - set(engine_sources())
    assert command
    assert all(path.is_relative_to(NATIVE / "src/phone") for path in command)


def test_one_version_of_the_compiler_everywhere() -> None:
    pins = re.findall(r'"ziglang==([^"]+)"', (ROOT / "pyproject.toml").read_text())
    assert pins == [ZIG_VERSION] * 2


def test_androids_c_library_outlives_the_checkout_that_made_it(tmp_path: Path) -> None:
    """The library is kept in the cache that checkouts share."""
    (made := tmp_path / "made").mkdir()
    make_c_library(made, tmp_path / "place", find_zig(), ANDROID["x86_64"], lambda line, out: out.touch())
    assert str(NATIVE) not in (made / "libc.txt").read_text()
    assert (made / "include" / "errno.h").is_file()
