"""How often each word of a vocabulary was seen in general text. FORMAT.md, "Counts"."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from phonograd.device_runtime.base.errors import VocabularyError
from phonograd.device_runtime.base.files import read_bytes
from phonograd.device_runtime.text.vocabulary import Ids, Vocabulary

# Exact as a float64, also with the half that the output sample adds.
_COUNT = re.compile(rb"0|[1-9][0-9]{0,14}")
_MOST_SHOWN = 60  # bytes of a line in an error


def zipf_counts(vocabulary: int) -> Ids:
    """Counts by Zipf's law for words that nobody counted, ids in order of falling frequency: round(10^6 / (id + 1))."""
    return np.rint(1e6 / np.arange(1, vocabulary + 1)).astype(np.int64)


def counts_bytes(vocabulary: Vocabulary, counts: Sequence[int] | Ids) -> bytes:
    """A counts file's content: lines `word<TAB>count` in order of id."""
    return b"".join(b"%b\t%d\n" % pair for pair in zip(vocabulary.words, counts, strict=True))


def load_counts(path: Path, vocabulary: Vocabulary, remedy: str = "export the folder again") -> Ids:
    """Read the counts [V] int64 of a vocabulary's words; `remedy` ends an error.

    Raises VocabularyError if the file can't be read, or has another word than the vocabulary, a line too few or too
    many, or a count that is no whole number of at most 15 digits.
    """
    try:
        data = read_bytes(path)
    except OSError as error:
        raise VocabularyError(f"{path}: cannot be read: {error.strerror}") from error
    lines = data.removesuffix(b"\n").split(b"\n")
    if len(lines) != len(vocabulary):
        raise VocabularyError(f"{path}: {len(vocabulary)} lines expected, one a word, found {len(lines)}; {remedy}")
    counts = np.empty(len(lines), np.int64)
    for number, (word, line) in enumerate(zip(vocabulary.words, lines, strict=True)):
        beginning = word + b"\t"
        count = line[len(beginning) :]
        if not line.startswith(beginning) or not _COUNT.fullmatch(count):
            raise VocabularyError(
                f"{path}: line {number + 1}: {_shown(word)}, a tab and a whole number of at most 15 digits expected, "
                f"found {_shown(line)}; {remedy}"
            )
        counts[number] = int(count)
    return counts


def _shown(text: bytes) -> str:
    return repr(text[:_MOST_SHOWN].decode("utf-8", "replace"))
