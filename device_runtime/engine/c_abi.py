"""Python's binding to the native engine's C ABI (native/include/phonograd.h)."""

import ctypes
import functools
import json
import os
import platform
from collections.abc import Mapping
from ctypes import POINTER, c_char, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_uint64, c_void_p
from pathlib import Path
from typing import Any

from phonograd.device_runtime.base.errors import (
    ArtifactsError,
    BuildError,
    OutOfMemoryError,
    PhonogradError,
    StateError,
    StorageError,
    TextError,
    TrainingError,
    UnsupportedError,
    UpdateError,
    UsageError,
    VocabularyError,
    WeightsError,
)
from phonograd.device_runtime.engine.backend import PRECISIONS, BackendOptions
from phonograd.device_runtime.native_build import (
    PACKAGED_LIBRARY,
    Progress,
    build_arm64_library,
    build_host_library,
    cached_library,
)

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
    )
}


class Options(ctypes.Structure):
    """pg_options."""

    _fields_ = (
        ("threads", c_int32),
        ("pin_threads", c_int32),
        ("fuse", c_int32),
        ("precision", c_int32),
        ("seed", c_uint64),
        ("kernels", c_char_p),
    )


class Suggested(ctypes.Structure):
    """pg_suggestion."""

    _fields_ = (("word", c_char_p), ("id", c_int64), ("probability", c_double))


class UpdateOptions(ctypes.Structure):
    """pg_update_options."""

    _fields_ = (
        ("size", c_size_t),
        ("base_sha256", c_char_p),
        ("codec", c_char_p),
        ("round", c_uint64),
        ("tokens", c_uint64),
        ("seed", c_uint64),
        ("steps", c_int64),
    )


class Written(ctypes.Structure):
    """pg_written."""

    _fields_ = (("size", c_size_t), ("nbytes", c_int64), ("sha256", c_char * 65))


def options_of(options: BackendOptions, fuse: bool = True) -> Options:
    """pg_options of a backend's options; `fuse` False runs every node by itself, for tests."""
    kernels = options.kernels or os.environ.get(KERNELS)
    return Options(
        threads=options.threads,
        pin_threads=options.pin_threads,
        fuse=fuse,
        precision=PRECISIONS.index(options.precision),
        seed=options.seed,
        kernels=kernels and kernels.encode(),
    )


SYSTEMS = ("x86_64 Linux", "aarch64 Linux")
# name: (result, arguments). A c_int result is a pg_status.
PROTOTYPES: Mapping[str, tuple[Any, tuple[Any, ...]]] = {
    "pg_abi_version": (c_int32, ()),
    "pg_last_error": (c_char_p, ()),
    "pg_cpu_info": (c_char_p, ()),
    "pg_engine_open": (c_int, (c_char_p, c_char_p, POINTER(Options), POINTER(c_void_p))),
    "pg_engine_open_sampled": (
        c_int,
        (c_char_p, c_char_p, POINTER(Options), c_void_p, c_void_p, c_int64, POINTER(c_void_p)),
    ),
    "pg_engine_close": (None, (c_void_p,)),
    "pg_engine_reset": (c_int, (c_void_p,)),
    "pg_engine_step": (c_int, (c_void_p, c_void_p, c_void_p, c_float, POINTER(c_float))),
    "pg_engine_full_batch": (c_int, (c_void_p,)),
    "pg_engine_finish_full_batch": (c_int, (c_void_p, c_float)),
    "pg_engine_logits": (c_int, (c_void_p, c_void_p, c_int64, c_int64, c_void_p)),
    "pg_engine_parameters": (c_int32, (c_void_p,)),
    "pg_engine_parameter": (
        c_int,
        (c_void_p, c_int32, POINTER(c_char_p), POINTER(c_int64), POINTER(POINTER(c_float))),
    ),
    "pg_engine_write_update": (c_int, (c_void_p, POINTER(UpdateOptions), c_char_p, POINTER(Written))),
    "pg_engine_plan": (c_int, (c_void_p, POINTER(c_char_p))),
    "pg_engine_phases": (c_int, (c_void_p, POINTER(c_char_p))),
    "pg_state_open": (
        c_int,
        (c_void_p, c_char_p, c_void_p, c_int64, c_double, c_int32, POINTER(c_void_p)),
    ),
    "pg_state_open_sampled": (
        c_int,
        (c_void_p, c_char_p, c_void_p, c_int64, c_double, c_int32, c_int64, c_uint64, POINTER(c_void_p)),
    ),
    "pg_state_close": (None, (c_void_p,)),
    "pg_state_resume": (c_int, (c_void_p, c_void_p, c_void_p, c_int64, POINTER(c_int64))),
    "pg_state_save": (c_int, (c_void_p, c_void_p, c_void_p, c_int64)),
    "pg_state_discard": (c_int, (c_void_p,)),
    "pg_predictor_open": (c_int, (c_char_p, c_char_p, POINTER(Options), POINTER(c_void_p))),
    "pg_predictor_close": (None, (c_void_p,)),
    "pg_predictor_reset": (c_int, (c_void_p,)),
    "pg_predictor_feed": (c_int, (c_void_p, c_char_p)),
    "pg_predictor_suggest": (c_int, (c_void_p, c_char_p, c_int32, POINTER(Suggested), POINTER(c_int32))),
    "pg_predictor_scores": (c_int, (c_void_p, c_void_p)),
    "pg_predictor_state": (c_int, (c_void_p, POINTER(c_void_p), POINTER(c_size_t))),
    "pg_predictor_restore": (c_int, (c_void_p, c_char_p, c_size_t)),
    "pg_quantize": (c_int, (c_char_p, c_char_p, c_char_p)),
    "pg_graph_open": (c_int, (c_char_p, c_char_p, c_char_p, POINTER(Options), POINTER(c_void_p))),
    "pg_graph_close": (None, (c_void_p,)),
    "pg_graph_set": (c_int, (c_void_p, c_char_p, c_void_p, c_size_t)),
    "pg_graph_run": (c_int, (c_void_p, c_float)),
    "pg_graph_get": (
        c_int,
        (c_void_p, c_char_p, POINTER(c_void_p), POINTER(c_size_t), POINTER(c_int64), POINTER(c_int32)),
    ),
    "pg_rotate": (c_int, (c_void_p, c_int64, c_int64, c_int64, c_void_p, c_int32, c_int32)),
}


class NativeLibrary:
    """A loaded library. Thread-safe, but a handle may be used by one thread at a time only.

    Raises BuildError if the file can't be loaded or has another ABI version.
    """

    def __init__(self, path: Path):
        try:
            self._functions = ctypes.CDLL(str(path))
            for name, (result, arguments) in PROTOTYPES.items():
                function = getattr(self._functions, name)
                function.restype, function.argtypes = result, arguments
        except (OSError, AttributeError) as error:
            raise BuildError(f"{path}: cannot be loaded ({error}); install phonograd again") from error
        found = self._functions.pg_abi_version()
        if found != ABI_VERSION:
            raise BuildError(f"{path}: ABI version {ABI_VERSION} expected, found {found}; install phonograd again")

    def function(self, name: str) -> Any:
        """A function of PROTOTYPES. Use `call` for functions that can fail."""
        return getattr(self._functions, name)

    def call(self, name: str, *arguments: object) -> None:
        """Call a function that returns a pg_status. Raises the error with that exit code."""
        status = self.function(name)(*arguments)
        if status:
            raise self._error(status)

    def text(self, name: str, handle: c_void_p) -> str:
        """Call a function that returns a string through its second argument."""
        found = c_char_p()
        self.call(name, handle, ctypes.byref(found))
        return (found.value or b"").decode()

    def cpu_info(self) -> dict[str, Any]:
        """The CPU as the engine sees it: features, cores, kernels it can run (best first), bf16 (a name or None)."""
        document: dict[str, Any] = json.loads(self.function("pg_cpu_info")())
        return document

    def _error(self, status: int) -> Exception:
        message: str = self.function("pg_last_error")().decode(errors="replace")
        if status in ERRORS:
            return ERRORS[status](message)
        return RuntimeError(f"native engine, status {status}: {message}")


def find_library(progress: Progress | None = None) -> Path:
    """The wheel's library; in a source checkout the one in the build cache, which is built if necessary.

    Raises UnsupportedError on other systems than SYSTEMS, and what a build raises.
    """
    machine = f"{platform.machine()} {platform.system()}"
    if machine not in SYSTEMS:
        raise UnsupportedError(
            f"native engine: {' or '.join(SYSTEMS)} expected, found {machine}; run this on Linux, such as in a "
            "container or WSL, or on phones (phone-bench, phone-round), or use the backend ort"
        )
    if PACKAGED_LIBRARY.is_file():
        return PACKAGED_LIBRARY
    build = build_arm64_library if machine == "aarch64 Linux" else build_host_library
    return build(progress=progress).path


@functools.cache
def load_library() -> NativeLibrary:
    """The library of `find_library`, loaded once. Raises what that and `NativeLibrary` raise."""
    return NativeLibrary(find_library())


@functools.cache
def available_library() -> NativeLibrary | None:
    """The library, loaded once, for work that NumPy does too, but slower. None on other systems, if it is not built
    yet, and if it does not load.
    """
    try:
        if f"{platform.machine()} {platform.system()}" not in SYSTEMS:
            return None
        path = PACKAGED_LIBRARY if PACKAGED_LIBRARY.is_file() else cached_library(platform.machine())
        return None if path is None else NativeLibrary(path)
    except PhonogradError:
        return None
