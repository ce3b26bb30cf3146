"""The vocabulary: one word a line, line number = id. FORMAT.md, "Vocabulary"."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from phonograd.device_runtime.base.errors import VocabularyError
from phonograd.device_runtime.base.files import read_bytes
from phonograd.device_runtime.text.messages import tokenize

UNK, EOS = 0, 1
UNK_WORD, EOS_WORD = b"<unk>", b"<eos>"

QUOTED_BYTES = 40  # of a word in an error: another file given as the vocabulary may have huge lines

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Vocabulary:
    """Words by id; `<unk>` is 0 and `<eos>` is 1.

    Raises VocabularyError if the first two words are not these, or a word is empty or appears twice.
    """

    words: tuple[bytes, ...]
    source: str = "vocabulary"
    _ids: dict[bytes, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.words[:2] != (UNK_WORD, EOS_WORD):
            raise VocabularyError(f"{self.source}: lines 1 and 2 must be <unk> and <eos>, found {self._quoted(0, 1)}")
        ids: dict[bytes, int] = {}
        for number, word in enumerate(self.words):
            if not word:
                raise VocabularyError(f"{self.source}: line {number + 1} is empty, expected a word")
            if word in ids:
                raise VocabularyError(
                    f"{self.source}: {self._quoted(number)} is on lines {ids[word] + 1} and {number + 1}; "
                    "each word must appear once"
                )
            ids[word] = number
        object.__setattr__(self, "_ids", ids)

    def _quoted(self, *numbers: int) -> str:
        words = [self.words[number][:QUOTED_BYTES] for number in numbers if number < len(self.words)]
        return " and ".join(repr(word.decode("utf-8", "replace")) for word in words) or "none"

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
        """The token stream of messages: ids [N] int64, each message followed by `<eos>`, unknown words 0."""
        ids: list[int] = []
        for message in messages:
            ids.extend(self._ids.get(word, UNK) for word in tokenize(message))
            ids.append(EOS)
        return np.array(ids, np.int64)
