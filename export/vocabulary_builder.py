"""Builds a vocabulary from texts: the most frequent tokens, and beside it how often each was seen."""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from phonograd.device_runtime.base.errors import TextError, VocabularyError
from phonograd.device_runtime.base.files import write_bytes
from phonograd.device_runtime.text.counts import counts_bytes, load_counts
from phonograd.device_runtime.text.messages import read_messages, tokenize
from phonograd.device_runtime.text.vocabulary import EOS_WORD, UNK_WORD, Ids, Vocabulary

MINIMUM_SIZE = 3  # <unk>, <eos> and one word


@dataclass(frozen=True)
class CountedVocabulary:
    """A vocabulary and the count of each of its words in the texts it was built from.

    The count of `<unk>` is that of all tokens left out, the count of `<eos>` that of messages.
    """

    vocabulary: Vocabulary
    counts: tuple[int, ...]

    @property
    def coverage(self) -> float:
        """The share of the texts' tokens, in [0, 1] and without `<eos>`, that the vocabulary holds."""
        known = sum(self.counts[2:])
        return known / (known + self.counts[0])

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the vocabulary to `path` and the counts to `counts_path(path)`, each atomically.

        Raises StorageError when the disk refuses.
        """
        path = Path(path)
        write_bytes(counts_path(path), counts_bytes(self.vocabulary, self.counts))
        write_bytes(path, self.vocabulary.to_bytes())


def counts_path(vocabulary: Path) -> Path:
    """Path of a vocabulary file's counts: `vocab.txt.counts`, lines `word<TAB>count` in order of id."""
    return vocabulary.with_name(f"{vocabulary.name}.counts")


def counts_beside(path: Path, vocabulary: Vocabulary) -> Ids | None:
    """The counts [V] int64 at `counts_path(path)`, None without that file. Raises VocabularyError as `load_counts`."""
    counts = counts_path(path)
    if not counts.exists():
        return None
    return load_counts(counts, vocabulary, f"count again with: phonograd vocab build, or remove {counts}")


def build_vocabulary(texts: Sequence[str | os.PathLike[str]], size: int, reserve: bool = False) -> CountedVocabulary:
    """`<unk>`, `<eos>` and the `size` - 2 most frequent tokens of `texts`; equal counts in the order of their bytes.

    A literal `<unk>` in a text (WikiText has them) counts as a token left out. Where the texts hold too few words,
    `reserve` fills up with `<reserved-0>`, `<reserved-1>`, ...: no text yields such a token, so that their lines can be
    given to new words later without changing the model's shape.

    Raises VocabularyError for a size below 3 or too few words, TextError for a text that is missing or empty.
    """
    if size < MINIMUM_SIZE:
        raise VocabularyError(f"vocabulary: size {size}, expected at least {MINIMUM_SIZE}: <unk>, <eos> and a word")
    messages, counts = _count(texts)
    # Sorting by bytes after the count makes the file a function of the texts, whatever order they are given in.
    unknown = counts.pop(UNK_WORD, 0)
    kept = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[: size - 2]
    reserved = size - 2 - len(kept)
    if reserved and not reserve:
        raise VocabularyError(
            f"vocabulary: {size - 2} distinct words expected in the texts, found {len(kept)}; "
            f"give more text, ask for {len(kept) + 2} words, or `reserve` the missing lines"
        )
    left_out = unknown + counts.total() - sum(count for _, count in kept)
    return CountedVocabulary(
        Vocabulary((UNK_WORD, EOS_WORD, *(word for word, _ in kept), *(b"<reserved-%d>" % n for n in range(reserved)))),
        (left_out, messages, *(count for _, count in kept), *(0 for _ in range(reserved))),
    )


def _count(texts: Sequence[str | os.PathLike[str]]) -> tuple[int, Counter[bytes]]:
    if not texts:
        raise TextError("vocabulary: no text given, expected at least one file, one message a line")
    messages = 0
    counts: Counter[bytes] = Counter()
    for path in texts:
        for message in read_messages(Path(path)):
            messages += 1
            counts.update(tokenize(message))
    return messages, counts
