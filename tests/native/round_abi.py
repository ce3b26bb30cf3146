"""The round of phonograd.h by ctypes, as an app's own binding would have it."""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import POINTER, c_char_p, c_int32, c_uint64, c_void_p
from pathlib import Path
from typing import Any

from phonograd.device_runtime.engine.c_abi import find_library
from phonograd.device_runtime.engine.header import functions, structs
from tests.support.phone_command import Place

Options, Model, Progress, Text = (structs()[f"pg_{name}"] for name in ("round_options", "model", "progress", "text"))
ON_PROGRESS = ctypes.CFUNCTYPE(None, c_void_p, POINTER(Progress))


def load() -> ctypes.CDLL:
    """The library, with the functions of its header declared."""
    library = ctypes.CDLL(str(find_library()))
    for name, (result, arguments, _) in functions().items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
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
        self.call("pg_round_train", ON_PROGRESS(on_progress), None, ctypes.byref(finished))
        return bool(finished.value)

    def report(self) -> bytes:
        found = c_char_p()
        self.call("pg_round_report", ctypes.byref(found))
        return found.value or b""


def call(library: ctypes.CDLL, name: str, *arguments: object) -> None:
    """Raises RefusedError with the library's message."""
    status = getattr(library, name)(*arguments)
    if status:
        raise RefusedError(status, library.pg_last_error().decode())


def options_of(place: Place, **fields: Any) -> Any:
    """A round over the place's text, of seed 0, on one thread. Strings and paths become bytes."""
    options = Options(size=ctypes.sizeof(Options))
    numbers = options.numbers = dict[str, c_uint64]()  # as long as the options
    default = {"folder": place.artifacts.folder, "user": place.user, "seed": 0, "threads": 1}
    for name, value in (default | fields).items():
        if name in {"user", "rehearsal"}:
            setattr(options, name, text_of(value))
        elif name in {"seed", "sample_seed"}:
            numbers[name] = c_uint64(value or 0)
            setattr(options, name, None if value is None else ctypes.addressof(numbers[name]))
        else:
            setattr(options, name, str(value).encode() if isinstance(value, str | Path) else value)
    return options


def text_of(value: Path | bytes | None) -> Any:
    """A pg_text of a file, or of bytes in memory."""
    if isinstance(value, bytes):
        return Text(None, value, len(value))
    return Text(None if value is None else str(value).encode(), None, 0)


@contextmanager
def open_round(library: ctypes.CDLL, options: Any) -> Iterator[Round]:
    """A round, until the end of the block."""
    handle = c_void_p()
    call(library, "pg_round_open", ctypes.byref(options), ctypes.byref(handle))
    try:
        yield Round(library, handle)
    finally:
        library.pg_round_close(handle)
