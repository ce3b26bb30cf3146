"""Python's binding to the native library, by its header."""

import ctypes
import functools
import json
import os
import platform
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from ctypes import byref, c_void_p
from pathlib import Path
from typing import Any, TypeVar

from phonograd.device_runtime.base.errors import (
    ArtifactsError,
    BuildError,
    OutOfMemoryError,
    PhonogradError,
    StateError,
    StorageError,
    TextError,
    TookPartError,
    TrainingError,
    UnsupportedError,
    UpdateError,
    UsageError,
    VocabularyError,
    WeightsError,
)
from phonograd.device_runtime.base.signals import signals_noted
from phonograd.device_runtime.engine.backend import PRECISIONS, BackendOptions
from phonograd.device_runtime.engine.header import functions, new, plain, structs
from phonograd.device_runtime.native_build import (
    PACKAGED_LIBRARY,
    build_arm64_library,
    build_host_library,
    build_macos_library,
)
from phonograd.device_runtime.native_build.compiler import Progress

Opened = TypeVar("Opened", bound="Handle")
ABI_VERSION = 1
KERNELS = "PHONOGRAD_KERNELS"  # the kernel set where options name none
ERRORS: Mapping[int, type[PhonogradError]] = {
    kind.exit_code: kind
    for kind in (
        UsageError,
        TextError,
        VocabularyError,
        ArtifactsError,
        WeightsError,
        UpdateError,
        UnsupportedError,
        StorageError,
        TrainingError,
        StateError,
        OutOfMemoryError,
        TookPartError,
    )
}


def options_of(options: BackendOptions, fuse: bool = True) -> Any:
    """pg_options of a backend's options; `fuse` False runs every node by itself, for tests."""
    return new(
        "pg_options",
        threads=options.threads,
        pin_threads=options.pin_threads,
        unfused=not fuse,
        precision=PRECISIONS.index(options.precision),
        seed=options.seed,
        kernels=options.kernels or os.environ.get(KERNELS) or None,
        teacher=options.teacher,
    )


@contextmanager
def callback(struct: str, field: str, function: Callable[..., object]) -> Iterator[Any]:
    """A function as a struct's field of that name, to be called by the library until the end of the block.

    What it raises, and what handlers of signals do meanwhile, is raised at the end; the library then stops, as for a
    true result.
    """
    raised: list[BaseException] = []

    def call(*arguments: object) -> int:
        try:
            return bool(raised) or bool(function(*arguments))
        except BaseException as error:
            raised.append(error)
            return True

    try:
        with signals_noted(raised):
            yield dict(structs()[struct]._fields_)[field](call)
    finally:
        if raised:
            raise raised[0]


SYSTEMS = ("x86_64 Linux", "aarch64 Linux", "arm64 macOS", "x86_64 macOS")


def encode_text(text: str) -> bytes:
    """Encode a text for the library. Raises TextError for what is no UTF-8, and for NUL."""
    try:
        data = text.encode()
    except UnicodeEncodeError as error:  # an argument that was not UTF-8, as Python reads it
        raise TextError("text: found bytes that are not UTF-8; expected UTF-8 text") from error
    if b"\0" in data:
        raise TextError("text: found a NUL byte; expected UTF-8 text")
    return data


class NativeLibrary:
    """A loaded library. Thread-safe, but a handle may be used by one thread at a time only.

    Raises BuildError if the file can't be loaded or has another ABI version.
    """

    def __init__(self, path: Path):
        try:
            self._library = ctypes.CDLL(str(path))
            found = self.function("pg_abi_version")()
        except (OSError, AttributeError) as error:
            raise BuildError(f"{path}: cannot be loaded ({error}); install phonograd again") from error
        if found != ABI_VERSION:
            raise BuildError(f"{path}: ABI version {ABI_VERSION} expected, found {found}; install phonograd again")

    def function(self, name: str) -> Any:
        """A function of the header. Use `call` for functions that can fail."""
        function = getattr(self._library, name)  # the same object each time
        if function.argtypes is None:
            function.restype, function.argtypes, _ = functions()[name]
        return function

    def call(self, name: str, *given: object, **named: object) -> tuple[Any, ...]:
        """Call a function that returns a pg_status. Raises the error of that exit code.

        Arguments are given in the header's order, or by its names, as `plain` has them, and structs by their address.
        Those that are left out are outputs: they are returned, in this order.
        """
        _, kinds, places = functions()[name]
        arguments = dict(zip(places, given, strict=False)) | named
        outputs = {key: place() for key, place in places.items() if key not in arguments}
        status = self.function(name)(
            *(
                _argument(arguments[key], key, kind) if key in arguments else byref(outputs[key])
                for key, kind in zip(places, kinds, strict=True)
            )
        )
        if status:
            raise self._error(status)
        return tuple(getattr(one, "value", one) for one in outputs.values())

    def text(self, name: str, handle: c_void_p) -> str:
        """Call a function whose only output is a string."""
        return ctypes.string_at(*self.call(name, handle)).decode()

    def cpu_info(self) -> dict[str, Any]:
        """The CPU as the engine sees it: features, cores, kernels it can run (best first), bf16 (a name or None)."""
        document: dict[str, Any] = json.loads(self.function("pg_cpu_info")())
        return document

    def _error(self, status: int) -> Exception:
        message: str = self.function("pg_last_error")().decode(errors="replace")
        if status in ERRORS:
            return ERRORS[status](message)
        return RuntimeError(f"native engine, status {status}: {message}")


def _argument(value: object, name: str, kind: Any) -> Any:
    return byref(value) if isinstance(value, ctypes.Structure) else plain(value, name, kind)


class Handle:
    """An object that a function of the library opened: freed by `close`, at a block's end, or with this object."""

    def __init__(self, library: NativeLibrary, kind: str, *arguments: object):
        """Call pg_KIND_open with these arguments; pg_KIND_close frees it. Raises what `NativeLibrary.call` raises."""
        self._library = library
        self.handle = c_void_p(*library.call(f"pg_{kind}_open", *arguments))
        self._free = weakref.finalize(self, library.function(f"pg_{kind}_close"), self.handle.value)

    def __enter__(self: Opened) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free it; it can't be used afterwards."""
        self._free()
        self.handle = c_void_p()


def find_library(progress: Progress | None = None) -> Path:
    """The wheel's library; in a source checkout the one in the build cache, which is built if necessary.

    Raises UnsupportedError on other systems than SYSTEMS, and what a build raises.
    """
    cpu, system = platform.machine(), platform.system().replace("Darwin", "macOS")
    machine = f"{cpu} {system}"
    if machine not in SYSTEMS:
        raise UnsupportedError(
            f"native engine: {', '.join(SYSTEMS)} expected, found {machine}; run this on Linux, such as in a "
            "container or WSL, or on phones (phone-bench, phone-round)"
        )
    if PACKAGED_LIBRARY.is_file():
        return PACKAGED_LIBRARY
    on_linux = build_arm64_library if cpu == "aarch64" else build_host_library
    return (build_macos_library[cpu] if system == "macOS" else on_linux)(progress=progress).path


@functools.cache
def load_library() -> NativeLibrary:
    """The library of `find_library`, loaded once. Raises what that and `NativeLibrary` raise."""
    return NativeLibrary(find_library())
