"""The vocabulary: one word a line, line number = id. FORMAT.md, "Vocabulary"."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from phonograd.device_runtime.base.errors import VocabularyError
from phonograd.device_runtime.base.files import read_bytes, write_bytes
from phonograd.device_runtime.engine.backend import Ids
from phonograd.device_runtime.text.tokenizer import Tokenizer, ids_at, text_of

__all__ = ["EOS", "EOS_WORD", "UNK", "UNK_WORD", "Ids", "Vocabulary"]

UNK, EOS = 0, 1
UNK_WORD, EOS_WORD = b"<unk>", b"<eos>"


@dataclass(frozen=True)
class Vocabulary:
    """Words by id; `<unk>` is 0 and `<eos>` is 1. tokenizer: the library's, with these words.

    counts: how often general text has each word [V]; None: Zipf's law, for ids in order of falling frequency.
    forms: how each word [V] is usually written, b"" for as it stands; None: none.
    turkish: I is the capital of the dotless i.

    Raises VocabularyError if the first two words are not these, or a word is empty or appears twice.
    """

    words: tuple[bytes, ...]
    source: str = "vocabulary"
    counts: tuple[int, ...] | None = None
    forms: tuple[bytes, ...] | None = None
    turkish: bool = False
    tokenizer: Tokenizer = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokenizer", Tokenizer(self.to_bytes(), self.source))

    def __reduce__(self) -> tuple[object, ...]:
        return Vocabulary, (self.words, self.source, self.counts, self.forms, self.turkish)

    @classmethod
    def load(cls, path: Path, size: int | None = None) -> "Vocabulary":
        """Read a vocabulary file. Raises VocabularyError, also if it does not have `size` words."""
        try:
            data = read_bytes(path)
        except OSError as error:
            raise VocabularyError(f"{path}: cannot be read: {error.strerror}") from error
        Tokenizer(data, str(path))  # what is wrong with a line, it says
        lines = [line.split(b"\t") for line in data.removesuffix(b"\n").split(b"\n")]
        counted = len(lines[0]) > 1
        forms = tuple(line[2] if len(line) > 2 else b"" for line in lines)
        vocabulary = cls(
            tuple(line[0] for line in lines),
            str(path),
            tuple(int(line[1]) for line in lines) if counted else None,
            (b"", *forms[1:]) if any(forms[1:]) else None,
            forms[0] == b"turkish",
        )
        if size is not None and len(vocabulary) != size:
            raise VocabularyError(f"{path}: {size} words expected by the model, found {len(vocabulary)}")
        return vocabulary

    def __len__(self) -> int:
        return len(self.words)

    def to_bytes(self, counted: bool = False) -> bytes:
        """The file's content. counted: with counts, also where they follow Zipf's law."""
        if not (counted or self.counts or self.forms or self.turkish):
            return b"\n".join(self.words) + b"\n"
        counts = self.counts or [round(1e6 / (id + 1)) for id in range(len(self))]
        forms = [b"turkish" if self.turkish else b"", *(self.forms or (b"",) * len(self))[1:]]
        rows = zip(self.words, counts, forms, strict=True)
        return b"".join(b"%b\t%d%b\n" % (word, count, form and b"\t" + form) for word, count, form in rows)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the file atomically. Raises StorageError when the disk refuses."""
        write_bytes(Path(path), self.to_bytes())

    def frequencies(self) -> Ids:
        """The counts [V] int64, by Zipf's law where there are none."""
        return self.tokenizer.call("pg_tokenizer_counts", result=lambda counts: ids_at(counts, len(self)))

    def tokenize(self, message: bytes) -> list[bytes]:
        """The tokens of a message, which has no line feed."""
        return self.tokenizer.tokens(message)

    def encode(self, messages: Iterable[bytes]) -> Ids:
        """The token stream of messages with a token: ids [N] int64, each followed by `<eos>`, unknown words 0."""
        given = text_of(b"\n".join(messages)), None, 1.0, 0
        return self.tokenizer.call("pg_tokenizer_mix", *given, result=lambda stream: ids_at(stream.ids, stream.tokens))
