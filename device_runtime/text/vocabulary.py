"""The vocabulary: one word a line, line number = id. FORMAT.md, "Vocabulary"."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from phonograd.device_runtime.base.errors import VocabularyError
from phonograd.device_runtime.base.files import read_bytes
from phonograd.device_runtime.engine.backend import Ids
from phonograd.device_runtime.text.tokenizer import Tokenizer, ids_at, text_of

__all__ = ["EOS", "EOS_WORD", "UNK", "UNK_WORD", "Ids", "Vocabulary"]

UNK, EOS = 0, 1
UNK_WORD, EOS_WORD = b"<unk>", b"<eos>"


@dataclass(frozen=True)
class Vocabulary:
    """Words by id; `<unk>` is 0 and `<eos>` is 1. tokenizer: the library's, with these words.

    Raises VocabularyError if the first two words are not these, or a word is empty or appears twice.
    """

    words: tuple[bytes, ...]
    source: str = "vocabulary"
    tokenizer: Tokenizer = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokenizer", Tokenizer(self.to_bytes(), self.source))

    def __reduce__(self) -> tuple[object, ...]:
        return Vocabulary, (self.words, self.source)

    @classmethod
    def load(cls, path: Path, size: int | None = None) -> "Vocabulary":
        """Read a vocabulary file. Raises VocabularyError, also if it does not have `size` words."""
        try:
            data = read_bytes(path)
        except OSError as error:
            raise VocabularyError(f"{path}: cannot be read: {error.strerror}") from error
        vocabulary = cls(tuple(data.removesuffix(b"\n").split(b"\n")), str(path))
        if size is not None and len(vocabulary) != size:
            raise VocabularyError(f"{path}: {size} words expected by the model, found {len(vocabulary)}")
        return vocabulary

    def __len__(self) -> int:
        return len(self.words)

    def to_bytes(self) -> bytes:
        """The file's content."""
        return b"\n".join(self.words) + b"\n"

    def encode(self, messages: Iterable[bytes]) -> Ids:
        """The token stream of messages with a token: ids [N] int64, each followed by `<eos>`, unknown words 0."""
        given = text_of(b"\n".join(messages)), None, 1.0, 0
        return self.tokenizer.call("pg_tokenizer_mix", *given, result=lambda stream: ids_at(stream.ids, stream.tokens))
