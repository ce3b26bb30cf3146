"""Vocabularies made elsewhere: in another order, with capitals, with words that the tokenizer never yields."""

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from phonograd.device_runtime.base.errors import VocabularyError
from phonograd.device_runtime.base.files import read_bytes
from phonograd.device_runtime.formats.tensor_file import Array
from phonograd.device_runtime.text.tokenizer import Tokenizer
from phonograd.device_runtime.text.vocabulary import EOS_WORD, UNK_WORD, Ids, Vocabulary
from phonograd.export.foreign_vocabularies import WordList, read_words

ROWS_OF_WORDS = ("embedding.weight", "decoder.weight", "decoder.bias")  # tensors that have a row a word

# Other names that toolkits have for ours; fastai's texts begin with xxbos, which so stands between two of them.
_SPECIAL = {b"</s>": EOS_WORD, b"xxbos": EOS_WORD, b"xxeos": EOS_WORD, b"xxunk": UNK_WORD}
_NO_WORD = re.compile(rb"xx(?:pad|fld|maj|up|cap|rep|wrep|fake)\Z")  # fastai's
_WORD_BEGINS = "\N{LOWER ONE EIGHTH BLOCK}".encode()  # SentencePiece's mark
_CAPITAL = re.compile(rb"[A-Z]")
_RESERVED = re.compile(rb"<reserved-\d+>\Z")


@dataclass(frozen=True)
class Entry:
    """An entry of a foreign vocabulary, from 1, and its word; `became`: the word it is merged into, None if dropped."""

    line: int
    word: bytes
    became: bytes | None


@dataclass(frozen=True)
class ImportedVocabulary:
    """A foreign vocabulary by our rules: `<unk>`, `<eos>`, then its words in the order they first stand there.

    rows: of each word, the entry of the file, from 0, that it has its weights from: the one that spells it so, else the
    first that becomes it; -1 of `<unk>` and `<eos>` that were added, as word vectors have none. changed: entries that
    are spelled otherwise now; merged: the other entries that became a word, which has their counts too; dropped: those
    that no text can yield, whose counts `<unk>` has. entries: the rows of weights trained with it.
    """

    vocabulary: Vocabulary
    rows: tuple[int, ...]
    changed: tuple[Entry, ...]
    merged: tuple[Entry, ...]
    dropped: tuple[Entry, ...]
    entries: int


def import_vocabulary(path: Path, turkish: bool = False) -> ImportedVocabulary:
    """Read words in any order, as `read_words` does, folded as the tokenizer does it. turkish: I is the capital of ı.

    Raises VocabularyError if it can't be read, or has no `<unk>` or no `<eos>`; to word vectors they are added.
    """
    try:
        found = read_words(path, read_bytes(path))
    except OSError as error:
        raise VocabularyError(f"{path}: cannot be read: {error.strerror}; expected one word a line") from error
    lines = found.words
    # Lists from the web have the mark as a word; half of SentencePiece's entries begin with it, in Japanese fewer.
    pieces = sum(line.startswith(_WORD_BEGINS) for line in lines) * 10 > len(lines)
    turkish = turkish or (found.forms is not None and found.forms[0] == b"turkish")
    tokenizer = _tokenizer(found, turkish)
    became = [(_of_piece if pieces else _word)(line, tokenizer) for line in lines]
    rows: dict[bytes, int] = {}
    for row, (line, word) in enumerate(zip(lines, became, strict=True)):
        if word is not None and (word not in rows or (line == word != lines[rows[word]])):
            rows[word] = row  # a key keeps its place when its value changes: that of the first that became it
    for special in (UNK_WORD, EOS_WORD):
        if special not in rows and found.vectors:
            rows[special] = -1
        elif special not in rows:
            raise VocabularyError(
                f"{path}: {special.decode()} expected among its {len(lines)} words, not found; rename the word that "
                "stands for it"
            )
    order = sorted(rows, key=lambda word: (word != UNK_WORD, word != EOS_WORD))
    entries = [Entry(row + 1, line, word) for row, (line, word) in enumerate(zip(lines, became, strict=True))]
    kept = [entry for entry in entries if entry.became is not None and rows[entry.became] == entry.line - 1]
    counts = _counts(found, became, order)
    return ImportedVocabulary(
        Vocabulary(tuple(order), str(path), counts, _forms(found, rows, order, tokenizer), turkish),
        tuple(rows[word] for word in order),
        tuple(entry for entry in kept if entry.became != entry.word),
        tuple(entry for entry in entries if entry.became is not None and rows[entry.became] != entry.line - 1),
        tuple(entry for entry in entries if entry.became is None),
        len(lines),
    )


def _tokenizer(found: WordList, turkish: bool) -> Tokenizer:
    """The tokenizer of a list's words; those with a tab are no words."""
    rows = {UNK_WORD: 0, EOS_WORD: 0}
    for word, count in zip(found.words, found.counts or itertools.repeat(0), strict=False):
        if word and b"\t" not in word:
            rows.setdefault(word, count)
    return Vocabulary(tuple(rows), counts=tuple(rows.values()) if found.counts else None, turkish=turkish).tokenizer


def _counts(found: WordList, became: list[bytes | None], order: list[bytes]) -> tuple[int, ...] | None:
    """Counts of the words of `order`, if the list counts `<unk>` and `<eos>` too."""
    if found.counts is None or not {UNK_WORD, EOS_WORD} <= {*became}:
        return None
    counts = dict.fromkeys(order, 0)
    for word, count in zip(became, found.counts, strict=True):
        counts[word or UNK_WORD] += count
    return tuple(counts.values())


def _forms(
    found: WordList, rows: Mapping[bytes, int], order: list[bytes], tokenizer: Tokenizer
) -> tuple[bytes, ...] | None:
    """Forms of the words of `order`, where the list has some."""
    forms = [found.forms[rows[word]] if found.forms and rows[word] >= 0 else b"" for word in order]
    fitting = [form if tokenizer.tokens(form) == [word] else b"" for word, form in zip(order, forms, strict=True)]
    return tuple(fitting) if any(fitting) else None


def load_vocabulary(path: Path) -> Vocabulary:
    """A vocabulary to train a model with. Raises VocabularyError; what `vocab import` mends, its message says so."""
    remedy = f"make one that fits with: phonograd vocab import {path} --out NEW"
    try:
        vocabulary = Vocabulary.load(path)
    except VocabularyError as error:
        raise VocabularyError(f"{error}; {remedy}" if path.is_file() else str(error)) from error
    cased = [number for number, word in enumerate(vocabulary.words) if _CAPITAL.search(word)]
    if cased:
        first = vocabulary.words[cased[0]][:40].decode("utf-8", "replace")
        raise VocabularyError(
            f"{path}: words in lower case expected, as the tokenizer yields them; found {len(cased)} with capitals, "
            f"the first is {first!r} on line {cased[0] + 1}; {remedy}"
        )
    return vocabulary


def misfit(vocabulary: Vocabulary) -> list[str]:
    """A sentence on the words that no text has as one token; none if there are no such words."""
    odd = [word for word in vocabulary.words if _word(word, vocabulary.tokenizer) != word]
    if not odd:
        return []
    examples = ", ".join(repr(word[:40].decode("utf-8", "replace")) for word in odd[:3])
    return [
        f"{vocabulary.source}: {len(odd)} of {len(vocabulary)} words ({len(odd) / len(vocabulary):.2%}) are unused, "
        f"as no text is split into them: {examples}; a model trained on such words gets worse: train it on texts as "
        "phonograd splits them (`phonograd docs python`), or leave the words out with: phonograd vocab import"
    ]


def rows_of(vocabulary: Vocabulary, source: ImportedVocabulary) -> Ids:
    """Each word's row, int64 [V], of weights that were trained with `source`'s file.

    Raises VocabularyError for a word that `source` does not have.
    """
    rows = dict(zip(source.vocabulary.words, source.rows, strict=True))
    missing = [word for word in vocabulary.words if rows.get(word, -1) < 0]
    if missing:
        raise VocabularyError(
            f"{vocabulary.source}: words of {source.vocabulary.source} expected, which the weights have rows for; "
            f"{len(missing)} are not there, the first is {missing[0][:40].decode('utf-8', 'replace')!r}; make it with: "
            f"phonograd vocab import {source.vocabulary.source} --out {vocabulary.source}"
        )
    return np.array([rows[word] for word in vocabulary.words], np.int64)


def permute(tensors: Mapping[str, Array], rows: Ids) -> dict[str, Array]:
    """Canonical weights with these rows of all tensors that have one a word."""
    return {name: array[rows] if name in ROWS_OF_WORDS else array for name, array in tensors.items()}


def _word(line: bytes, tokenizer: Tokenizer) -> bytes | None:
    """What the tokenizer makes of a word of another vocabulary; None if no text yields it as one token."""
    if _RESERVED.match(line):
        return line
    lowered = line.lower()
    if lowered == EOS_WORD or lowered in _SPECIAL:
        return _SPECIAL.get(lowered, EOS_WORD)
    elided = line.endswith(b"'")  # a word of its own before a vowel alone
    tokens = tokenizer.tokens(line + b"a" if elided else line)
    return tokens[0] if len(tokens) == 1 + elided and not _NO_WORD.match(line) else None


def _of_piece(piece: bytes, tokenizer: Tokenizer) -> bytes | None:
    """What the tokenizer makes of a piece of SentencePiece: None for one inside a word."""
    whole = piece.startswith((_WORD_BEGINS, b"<"))
    return _word(piece.removeprefix(_WORD_BEGINS), tokenizer) if whole else None
