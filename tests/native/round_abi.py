"""The round of phonograd.h by ctypes, as an app's own binding would have it."""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import POINTER, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint64, c_void_p
from pathlib import Path
from typing import Any

from phonograd.device_runtime.engine.c_abi import find_library
from tests.support.phone_command import Place


class Text(ctypes.Structure):
    """pg_text."""

    _fields_ = (("path", c_char_p), ("bytes", c_char_p), ("length", c_size_t))


class Options(ctypes.Structure):
    """pg_round_options."""

    _fields_ = (
        ("size", c_size_t),
        ("folder", c_char_p),
        ("weights", c_char_p),
        ("user", Text),
        ("rehearsal", Text),
        ("user_share", c_double),
        ("learning_rate", c_double),
        ("duty", c_double),
        ("epochs", c_int64),
        ("output_sample", c_int64),
        ("round", c_uint64),
        ("phone", c_char_p),
        ("seed", POINTER(c_uint64)),
        ("sample_seed", POINTER(c_uint64)),
        ("out", c_char_p),
        ("update", c_char_p),
        ("codec", c_char_p),
        ("state", c_char_p),
        ("save_every", c_int64),
        ("kernels", c_char_p),
        ("threads", c_int32),
        ("pin_threads", c_int32),
        ("precision", c_int32),
        ("restart", c_int32),
        ("folder_descriptor", c_int32),
        ("update_descriptor", c_int32),
        ("steps", c_int64),
        ("max_unknown", c_double),
    )


class Model(ctypes.Structure):
    """pg_model."""

    _fields_ = (
        ("size", c_size_t),
        *((name, c_int64) for name in ("V", "E", "H", "layers", "T", "B", "output_words")),
        ("parameters", c_int64),
        ("parameter_bytes", c_int64),
        ("kernels", c_char_p),
        ("precision", c_int32),
        ("threads", c_int32),
    )


class Progress(ctypes.Structure):
    """pg_progress."""

    _fields_ = (
        ("size", c_size_t),
        *((name, c_int64) for name in ("step", "steps", "tokens", "saved")),
        ("loss", c_double),
        ("seconds", c_double),
    )


ON_PROGRESS = ctypes.CFUNCTYPE(None, c_void_p, POINTER(Progress))
PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "pg_round_open": (c_void_p, POINTER(c_void_p)),
    "pg_round_model": (c_void_p, c_void_p),
    "pg_round_train": (c_void_p, c_void_p, c_void_p, POINTER(c_int32)),
    "pg_round_cancel": (c_void_p,),
    "pg_round_report": (c_void_p, POINTER(c_char_p)),
    "pg_round_discard_state": (c_void_p,),
    "pg_round_close": (c_void_p,),
    "pg_engine_open_descriptor": (c_int32, c_char_p, c_void_p, POINTER(c_void_p)),
    "pg_engine_model": (c_void_p, c_void_p),
}


def load() -> ctypes.CDLL:
    """The library, with these functions declared."""
    library = ctypes.CDLL(str(find_library()))
    for name, arguments in PROTOTYPES.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, None if name.endswith("_close") else c_int
    library.pg_last_error.restype = c_char_p
    return library


class RefusedError(Exception):
    """A status other than PG_OK."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


class Round:
    """An open round; `call` raises RefusedError."""

    def __init__(self, library: ctypes.CDLL, handle: c_void_p):
        self.abi, self.handle = library, handle
        self.heard: list[tuple[int, int, int]] = []  # step, steps, saved
        self.losses: list[float] = []

    def call(self, name: str, *arguments: object) -> None:
        call(self.abi, name, self.handle, *arguments)

    def train(self, each: Callable[[int], None] = lambda step: None) -> bool:
        """Train; `each` is called after every step. Whether it finished."""

        def on_progress(context: object, progress: Any) -> None:
            found = progress.contents
            assert found.size == ctypes.sizeof(Progress)
            self.heard.append((found.step, found.steps, found.saved))
            self.losses.append(found.loss)
            each(found.step)

        finished = c_int32(7)
        self.call("pg_round_train", ON_PROGRESS(on_progress), None, finished)
        return bool(finished.value)

    def report(self) -> bytes:
        found = c_char_p()
        self.call("pg_round_report", found)
        return found.value or b""


def call(library: ctypes.CDLL, name: str, *arguments: object) -> None:
    """Raises RefusedError with the library's message."""
    status = getattr(library, name)(*arguments)
    if status:
        raise RefusedError(status, library.pg_last_error().decode())


def options_of(place: Place, **fields: Any) -> Options:
    """A round over the place's text, of seed 0; strings and paths become bytes, a text its path or bytes."""
    options = Options(size=ctypes.sizeof(Options))
    default = {"folder": place.artifacts.folder, "user": place.user, "seed": 0}
    for name, value in (default | fields).items():
        if name in {"user", "rehearsal"}:
            setattr(options, name, text_of(value))
        elif name in {"seed", "sample_seed"}:
            setattr(options, name, None if value is None else ctypes.pointer(c_uint64(value)))
        else:
            setattr(options, name, str(value).encode() if isinstance(value, str | Path) else value)
    return options


def text_of(value: Path | bytes | None) -> Text:
    """A pg_text of a file, or of bytes in memory."""
    if isinstance(value, bytes):
        return Text(None, value, len(value))
    return Text(None if value is None else str(value).encode(), None, 0)


@contextmanager
def opened(library: ctypes.CDLL, options: Any) -> Iterator[Round]:
    """A round, until the end of the block."""
    handle = c_void_p()
    call(library, "pg_round_open", ctypes.byref(options), handle)
    try:
        yield Round(library, handle)
    finally:
        library.pg_round_close(handle)
