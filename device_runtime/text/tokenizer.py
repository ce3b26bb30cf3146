"""The native library's reader of text, which all other modules of this folder call. FORMAT.md has the rules."""

import ctypes
import functools
import threading
from collections.abc import Callable
from ctypes import c_int64
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from phonograd.device_runtime.engine.c_abi import Handle, load_library
from phonograd.device_runtime.engine.header import new

Result = TypeVar("Result")


class Tokenizer(Handle):
    """Splits text into messages and tokens; with a vocabulary, `words`, also into ids. Thread-safe.

    words: a vocabulary file's bytes; name: what errors call it. Raises VocabularyError, UnsupportedError on a system
    that the library is not built for.
    """

    def __init__(self, words: bytes | None = None, name: str = "vocabulary"):
        self._lock = threading.Lock()
        given = words if words is None else text_of(words)
        super().__init__(load_library(), "tokenizer", given, name)

    def call(self, name: str, *arguments: object, result: Callable[..., Result]) -> Result:
        """Call a function of the library; `result` copies its outputs, before the next call replaces them."""
        with self._lock:
            return result(*self._library.call(name, self.handle, *arguments))

    def lines(self, name: str, text: Path | bytes) -> list[bytes]:
        """The lines that a function of the library makes of a text."""
        return self.call(name, text_of(text), result=ctypes.string_at).split(b"\n")[:-1]

    def tokens(self, message: bytes) -> list[bytes]:
        """The tokens of a message, which has no line feed; where no words are known, graphemes of unspaced scripts."""
        return [token for line in self.lines("pg_tokenizer_tokens", message) for token in line.split(b" ")]


@functools.cache
def plain_tokenizer() -> Tokenizer:
    """The one without a vocabulary."""
    return Tokenizer()


def text_of(text: Path | bytes) -> Any:
    """The pg_text of a file, or of bytes."""
    return new("pg_text", bytes=text, length=len(text)) if isinstance(text, bytes) else new("pg_text", path=text)


def ids_at(address: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """A copy of `count` ids at an address."""
    return np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(c_int64)), (count,)).copy() if count else _EMPTY


_EMPTY = np.empty(0, np.int64)
