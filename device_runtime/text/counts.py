"""Counts of a vocabulary's words in general text. FORMAT.md, "Counts"."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from phonograd.device_runtime.text.tokenizer import ids_at
from phonograd.device_runtime.text.vocabulary import Ids, Vocabulary


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
    return vocabulary.tokenizer.call(
        "pg_tokenizer_counts", path, remedy, result=lambda counts: ids_at(counts, len(vocabulary))
    )
