"""Messages and tokens. FORMAT.md, "Text"."""

from pathlib import Path

from phonograd.device_runtime.text.tokenizer import plain_tokenizer


def tokenize(message: bytes) -> list[bytes]:
    """The tokens of a message, which has no line feed."""
    return plain_tokenizer().tokens(message)


def split_messages(data: bytes) -> list[bytes]:
    """The messages of a text: its lines (ended by a line feed) that hold a token."""
    return plain_tokenizer().lines("pg_tokenizer_messages", data)


def read_messages(path: Path) -> list[bytes]:
    """The messages of a text file.

    Raises TextError if it can't be read, holds no message, or is not UTF-8: it has NUL bytes or a byte order mark of
    UTF-16 or UTF-32.
    """
    return plain_tokenizer().lines("pg_tokenizer_messages", path)
