"""Messages and tokens. FORMAT.md, "Text", has the rules; text/text.h implements them in C++."""

import re
from pathlib import Path

from phonograd.device_runtime.base.errors import TextError
from phonograd.device_runtime.base.files import read_bytes

_NO_BREAK_SPACE = b"\xc2\xa0"  # U+00A0
_FOLDS = (
    (b"\xe2\x80\x98", b"'"),  # U+2018
    (b"\xe2\x80\x99", b"'"),  # U+2019
    (b"\xe2\x80\x9c", b'"'),  # U+201C
    (b"\xe2\x80\x9d", b'"'),  # U+201D
    (b"\xe2\x80\xa6", b"..."),  # U+2026
    (b"\xe2\x80\x93", b"-"),  # U+2013
    (b"\xe2\x80\x94", b"-"),  # U+2014
    (_NO_BREAK_SPACE, b" "),
)
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
# `<unk>` comes first: WikiText, PTB and other published texts write it for a word that their authors left out.
_TOKEN = re.compile(rb"<unk>|[a-z0-9\x80-\xff]+(?:'[a-z0-9\x80-\xff]+)*|[^\sa-z0-9\x80-\xff]")


def fold(text: bytes) -> bytes:
    """ASCII letters to lower case, typographic marks to their ASCII equivalents, so that a word has one spelling."""
    text = text.lower()  # bytes.lower folds ASCII only
    for mark, plain in _FOLDS:
        text = text.replace(mark, plain)
    return text


def tokenize(message: bytes) -> list[bytes]:
    """Tokens of one message. It works on bytes, so that invalid UTF-8 is no special case."""
    return _TOKEN.findall(fold(message))


def split_messages(data: bytes) -> list[bytes]:
    """The messages of a text: its lines (ended by a line feed) that hold a token."""
    return [line for line in data.split(b"\n") if line.replace(_NO_BREAK_SPACE, b" ").strip()]


def read_messages(path: Path) -> list[bytes]:
    """The messages of a text file.

    Raises TextError if it can't be read, holds no message, or is not UTF-8: it has NUL bytes or a UTF-16 byte order
    mark.
    """
    try:
        data = read_bytes(path)
    except OSError as error:
        raise TextError(
            f"{path}: cannot be read: {error.strerror}; expected a text file, one message a line"
        ) from error
    _require_text(path, data)
    messages = split_messages(data)
    if not messages:
        raise TextError(f"{path}: no words found in {len(data)} bytes; expected a text, one message a line")
    return messages


def _require_text(path: Path, data: bytes) -> None:
    """UTF-16 text or a binary file would train as words that nobody wrote."""
    if data[:2] in UTF16_MARKS:
        raise TextError(
            f"{path}: begins with a UTF-16 byte order mark, expected UTF-8; convert it with: iconv -f UTF-16 -t UTF-8"
        )
    at = data.find(b"\0")
    if at >= 0:
        raise TextError(f"{path}: byte {at} is NUL; expected UTF-8 text, one message a line")
