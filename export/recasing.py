"""Measures how well a vocabulary knows which words are written with capitals."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from phonograd.device_runtime.text.vocabulary import Vocabulary


@dataclass(frozen=True)
class Miss:
    """A word that is written one way and shown another; times: how often."""

    written: str
    shown: str
    times: int


@dataclass(frozen=True)
class Recasing:
    """Words of the vocabulary in the middle of sentences, with capitals or another form that is not the plain one.

    recall: the share of those that are written so that are also shown so; precision: of those that are shown so that
    are also written so. None where there are none. misses: the commonest first.
    """

    written: int
    shown: int
    recall: float | None
    precision: float | None
    misses: tuple[Miss, ...]


def measure_recasing(vocabulary: Vocabulary, texts: Sequence[Path]) -> Recasing:
    """Compare the vocabulary's forms with texts, of one message a line. Raises TextError."""
    written: Counter[bytes] = Counter()
    for path in texts:
        for line in vocabulary.tokenizer.lines("pg_tokenizer_forms", path):
            written.update(line.split(b" "))
    forms = list(written)
    words = vocabulary.tokenizer.lines("pg_tokenizer_tokens", b"\n".join(forms)) if forms else []
    shown = dict(zip(vocabulary.words, vocabulary.forms or vocabulary.words, strict=True))
    found: Counter[str] = Counter()
    misses = []
    for form, word in zip(forms, words, strict=True):
        if word not in shown:
            continue
        usual, times = shown[word] or word, written[form]
        found["written"] += times * (form != word)
        found["shown"] += times * (usual != word)
        found["both"] += times * (form == usual != word)
        if form != usual:
            misses.append(Miss(form.decode("utf-8", "replace"), usual.decode("utf-8", "replace"), times))
    misses.sort(key=lambda miss: (-miss.times, miss.written))
    recall, precision = (found["both"] / found[key] if found[key] else None for key in ("written", "shown"))
    return Recasing(found["written"], found["shown"], recall, precision, tuple(misses))
