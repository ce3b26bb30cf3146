"""Compiling and linking with ziglang's compilers. Results are cached under the hash of all their inputs."""

import contextlib
import functools
import hashlib
import importlib.metadata
import os
import secrets
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from phonograd.device_runtime.base.errors import BuildError, MissingExtraError, how_to_install
from phonograd.device_runtime.base.files import lock_file, storage_errors
from phonograd.device_runtime.base.system import usable_cores
from phonograd.device_runtime.native_build.android import android_headers, android_parts, make_c_library
from phonograd.device_runtime.native_build.includes import Includes
from phonograd.device_runtime.native_build.targets import SMALL_FOLDERS, ZIG_VERSION, Target

KEPT_SECONDS = 7 * 24 * 3600  # files that no build used for a week are removed from the cache
ERRORS_SHOWN = 3
# Each adds search folders that the cache's key does not have.
IGNORED_VARIABLES = frozenset({"CPATH", "CPLUS_INCLUDE_PATH", "C_INCLUDE_PATH", "LIBRARY_PATH"})

ZIG = ".zig"  # the suffix of a source in Zig; the others are C++
COMPILER_CACHE = "ZIG_GLOBAL_CACHE_DIR"

# Called with (files done, files in total, the file), first with 0 before compiling; not called if nothing is compiled.
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class BuildResult:
    """A library or program; cached: it was in the cache, and nothing was compiled or linked."""

    path: Path
    cached: bool


def cache_folder() -> Path:
    """$PHONOGRAD_CACHE, else phonograd/ in the user's cache folder (XDG)."""
    if chosen := os.environ.get("PHONOGRAD_CACHE"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "phonograd"


def compiler_cache() -> str:
    """The folder where the compiler caches the C and C++ libraries that it compiles on first use of a target."""
    return os.environ.get(COMPILER_CACHE) or str(cache_folder() / "zig")


def find_zig() -> Path:
    """The compiler. Raises MissingExtraError if ziglang is not installed, BuildError if it is another version."""
    try:
        package = importlib.metadata.distribution("ziglang")
    except importlib.metadata.PackageNotFoundError as error:
        raise MissingExtraError(f"compiling the native engine needs ziglang; {how_to_install('build')}") from error
    if package.version != ZIG_VERSION:
        raise BuildError(
            f"ziglang: version {ZIG_VERSION} expected, found {package.version}; "
            f"install it with: pip install ziglang=={ZIG_VERSION}"
        )
    return Path(str(package.locate_file("ziglang/zig")))


@dataclass(frozen=True)
class Build:
    """A library or program to build: its name, its target, the tree its sources include from, and its sources."""

    name: str
    target: Target
    root: Path
    sources: tuple[Path, ...]
    shared: bool = False

    def run(self, fresh: bool = False, progress: Progress | None = None) -> BuildResult:
        """Compile what changed, link, and return the file in the cache; `fresh` reuses nothing from the cache.

        Other threads and processes may build at the same time: one at a time compiles, and files are named by the hash
        of their inputs and appear atomically.
        Raises BuildError with the compiler's first errors, MissingExtraError without ziglang, StorageError.
        """
        folder, objects = self._places()
        product = folder / self._product(objects)
        if not fresh and _touch(product):
            return BuildResult(product, cached=True)
        zig = find_zig()
        if progress is not None:  # before the lock: whoever compiles now may hold it for minutes
            progress(0, len(objects) + 1, "")
        with _lock_cache(folder):
            if not fresh and _touch(product):  # built by another process while this one waited
                return BuildResult(product, cached=True)
            self._compile(zig, objects, fresh, progress)
            self._link(zig, objects, product)
            _prune(folder)
        if progress is not None:
            progress(len(objects) + 1, len(objects) + 1, self.name)
        return BuildResult(product, cached=False)

    def objects(self) -> list[Path]:
        """Compile what changed, and return the objects in the order of the sources. Raises what `run` raises."""
        folder, objects = self._places()
        with _lock_cache(folder):
            self._compile(find_zig(), objects, fresh=False, progress=None)
        return objects

    def _places(self) -> tuple[Path, list[Path]]:
        """The cache's folder, created if it is missing, and the paths of the objects in it."""
        folder = cache_folder() / "native"
        with storage_errors(folder):
            (folder / "objects").mkdir(parents=True, exist_ok=True)
        return folder, [folder / "objects" / f"{key}.o" for key in self._object_keys()]

    @property
    def _link_flags(self) -> tuple[str, ...]:
        return self.target.shared_flags if self.shared else self.target.program_flags

    def _product(self, objects: Sequence[Path]) -> str:
        library = [_content(part) for part in android_parts()] if self.target.musl else []
        names = (path.name for path in objects)
        return f"{self.name}-{_hash([*self._link_flags, self.target.exports, *names, *library])}"

    def _compile(self, zig: Path, objects: Sequence[Path], fresh: bool, progress: Progress | None) -> None:
        libc = self._c_library(zig)

        def compile_source(source: Path, place: Path) -> Path:
            if fresh or not _touch(place):
                command = ("build-obj",) if source.suffix == ZIG else ("c++", "-c")
                arguments = (*command, *self._flags(source), str(self._relative(source)))
                self._zig(zig, arguments, place, f"{source}: does not compile for {self.target.triple}", libc)
            return source

        with ThreadPoolExecutor(usable_cores()) as pool:
            for done, source in enumerate(pool.map(compile_source, self.sources, objects)):
                if progress is not None:
                    progress(done + 1, len(objects) + 1, source.name)

    def _flags(self, source: Path) -> tuple[str, ...]:
        if source.suffix == ZIG:
            return self.target.zig_flags
        return (*self.target.compile_flags, *(("-Os",) if source.parent.name in SMALL_FOLDERS else ()))

    def _relative(self, source: Path) -> Path:
        # The compiler runs in `root`, so that its output has no paths of this machine.
        return source.relative_to(self.root) if source.is_relative_to(self.root) else source

    def _name(self, file: Path) -> str:
        # Only the name of a file outside the tree, so that checkouts share the objects of the tests' tools.
        return str(file.relative_to(self.root)) if file.is_relative_to(self.root) else file.name

    def _object_keys(self) -> list[str]:
        includes = Includes(self.root)
        content = functools.cache(_content)

        library = [content(part) for part in android_headers()] if self.target.musl else []

        def key(source: Path) -> str:
            files = (source, *includes.of(source))
            named = (part for file in files for part in (self._name(file), content(file)))
            return _hash([ZIG_VERSION, *self._flags(source), *named, *library])

        return [key(source) for source in self.sources]

    def _link(self, zig: Path, objects: Sequence[Path], product: Path) -> None:
        script = product.with_name(f"{product.name}.{secrets.token_hex(4)}.exports")
        arguments = ["c++", *self._link_flags, *map(str, objects)]
        try:
            if self.shared and not self.target.macos:
                with storage_errors(script):
                    script.write_text(f"{{ global: {self.target.exports}; local: *; }};\n")
                arguments.append(f"-Wl,--version-script={script}")
            failure = f"{self.name}: does not link for {self.target.triple}"
            self._zig(zig, arguments, product, failure, self._c_library(zig))
        finally:
            script.unlink(missing_ok=True)

    def _c_library(self, zig: Path) -> dict[str, str]:
        if not self.target.musl:
            return {}
        contents = (part for path in android_parts() for part in (path.name, _content(path)))
        place = cache_folder() / "native" / _hash([str(zig), ZIG_VERSION, self.target.triple, *contents])
        if not place.exists():
            with storage_errors(place), tempfile.TemporaryDirectory(dir=place.parent, prefix="libc-") as folder:
                made = Path(folder) / "made"
                made.mkdir()
                failure = f"{self.name}: the C library's stand-in does not compile for {self.target.musl}"

                def compile_with(line: tuple[str, ...], out: Path) -> None:
                    self._zig(zig, ("c++", *line), out, failure, {})

                make_c_library(made, place, zig, self.target, compile_with)
                made.rename(place)
        return {"ZIG_LIBC": str(place / "libc.txt")}

    def _zig(self, zig: Path, arguments: Sequence[str], out: Path, failure: str, libc: dict[str, str]) -> None:
        """Run a command of the compiler, and rename its output to `out` at the end."""
        partial = out.with_name(f"{out.name}.{secrets.token_hex(4)}.partial")
        output = [f"-femit-bin={partial}"] if arguments[0] == "build-obj" else ["-o", str(partial)]
        try:
            # A throw-away folder for the compiler's own cache of objects, which `fresh` must not read.
            with tempfile.TemporaryDirectory(prefix="phonograd-") as copies:
                done = subprocess.run(
                    [str(zig), *arguments, *output],
                    cwd=self.root,
                    env=_environment() | {"ZIG_LOCAL_CACHE_DIR": copies} | libc,
                    capture_output=True,
                    text=True,
                    errors="replace",
                    check=False,
                )
            if done.returncode != 0:
                raise BuildError("\n  ".join([failure, *_first_errors(done.stderr)]))
            with storage_errors(out):
                partial.replace(out)
        finally:
            partial.unlink(missing_ok=True)


@contextlib.contextmanager
def _lock_cache(folder: Path) -> Iterator[None]:
    """Hold the cache's lock, so that the second of two processes finds what the first compiled."""
    with contextlib.ExitStack() as held:
        with storage_errors(folder):
            lock = held.enter_context((folder / "objects" / "lock").open("wb"))
            lock_file(lock.fileno(), wait=True)
        yield


def _environment() -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in IGNORED_VARIABLES}
    return inherited | {COMPILER_CACHE: compiler_cache()}


def _first_errors(output: str) -> list[str]:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if "error:" in line]
    return errors[:ERRORS_SHOWN] or lines[-ERRORS_SHOWN:]


def _content(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _hash(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()[:32]


def _touch(path: Path) -> bool:
    """Return whether the cache has the file; if so, mark it as used now."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return True


def _prune(folder: Path) -> None:
    oldest = time.time() - KEPT_SECONDS
    for path in (*folder.iterdir(), *(folder / "objects").iterdir()):
        try:
            if path.is_file() and path.stat().st_mtime < oldest:
                path.unlink()
        except FileNotFoundError:
            continue  # another build removed it
