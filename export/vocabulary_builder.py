"""Builds a vocabulary from texts: the most frequent tokens, how often each was seen, and how it is usually written."""

import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from phonograd.device_runtime.base.errors import TextError, VocabularyError
from phonograd.device_runtime.base.files import read_bytes
from phonograd.device_runtime.text.tokenizer import Tokenizer
from phonograd.device_runtime.text.vocabulary import EOS_WORD, UNK_WORD, Vocabulary

MINIMUM_SIZE = 3  # <unk>, <eos> and one word
# Of a word's occurrences in the middle of sentences. From half of them on, people's "us" would be shown as US.
USUAL_SHARE = 0.8
# Thai, Lao, Myanmar, Khmer, kana, Han.
UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]")
_ENTRY = re.compile(rb"([^\s]+)[\t ]+(\d{1,15})")


def build_vocabulary(
    texts: Sequence[str | os.PathLike[str]],
    size: int,
    reserve: bool = False,
    lexicon: str | os.PathLike[str] | None = None,
    turkish: bool = False,
    words: str | os.PathLike[str] | None = None,
) -> Vocabulary:
    """`<unk>`, `<eos>` and the `size` - 2 most frequent tokens of `texts`; equal counts in the order of their bytes.

    A literal `<unk>` in a text (WikiText has them) counts as a token left out. Where the texts hold too few words,
    `reserve` fills up with `<reserved-0>`, `<reserved-1>`, ...: no text yields such a token, so that their lines can be
    given to new words later without changing the model's shape. lexicon: a file with lines `word count` by which text
    of scripts without spaces is split; without one, each of their graphemes is a word. turkish: I is the capital of ı.
    words: a vocabulary whose words are counted, in its order and by its rules, in place of the most frequent.

    Raises VocabularyError for a size below 3, too few words, or a lexicon that is none, TextError for a text that is
    missing or empty.
    """
    if size < MINIMUM_SIZE:
        raise VocabularyError(f"vocabulary: size {size}, expected at least {MINIMUM_SIZE}: <unk>, <eos> and a word")
    if words is not None:
        given = Vocabulary.load(Path(words))
        messages, counts, forms = _count(texts, given.tokenizer)
        return _with_counts(given.words, messages, counts, forms, given.turkish)
    messages, counts, forms = _count(texts, _tokenizer(lexicon, turkish))
    # Sorting by bytes after the count makes the file a function of the texts, whatever order they are given in.
    seen = sorted((word for word in counts if word != UNK_WORD), key=lambda word: (-counts[word], word))
    kept = seen[: size - 2]
    reserved = size - 2 - len(kept)
    if reserved and not reserve:
        raise VocabularyError(
            f"vocabulary: {size - 2} distinct words expected in the texts for a size of {size}, found {len(kept)}; "
            f"give more text, ask for a size of {len(kept) + 2}, or `reserve` the missing lines"
        )
    spare = (b"<reserved-%d>" % number for number in range(reserved))
    return _with_counts((UNK_WORD, EOS_WORD, *kept, *spare), messages, counts, forms, turkish)


def _with_counts(
    words: tuple[bytes, ...], messages: int, counts: Counter[bytes], forms: Mapping[bytes, bytes], turkish: bool
) -> Vocabulary:
    kept = [counts[word] for word in words[2:]]
    return Vocabulary(
        words,
        counts=(counts.total() - sum(kept), messages, *kept),
        forms=tuple(forms.get(word, b"") for word in words) if forms else None,
        turkish=turkish,
    )


def coverage(vocabulary: Vocabulary) -> float:
    """The share of the tokens that were counted, in [0, 1] and without `<eos>`, that the vocabulary holds."""
    counts = vocabulary.frequencies()
    return float(counts[2:].sum() / (counts[2:].sum() + counts[0]))


def unspaced_share(vocabulary: Vocabulary) -> float:
    """The share of the tokens that have a letter of a script without spaces."""
    counts = vocabulary.frequencies()
    unspaced = [bool(UNSPACED.search(word.decode("utf-8", "replace"))) for word in vocabulary.words]
    return float(counts[unspaced].sum() / counts.sum())


def _tokenizer(lexicon: str | os.PathLike[str] | None, turkish: bool) -> Tokenizer:
    head = [b"<unk>\t0\tturkish" if turkish else b"<unk>\t0", b"<eos>\t0"]
    if lexicon is None:
        return Tokenizer(b"\n".join(head))
    return Tokenizer(b"\n".join([*head, *_entries(Path(lexicon))]), str(lexicon))


def _entries(lexicon: Path) -> Iterator[bytes]:
    try:
        lines = read_bytes(lexicon).removesuffix(b"\n").split(b"\n")
    except OSError as error:
        raise VocabularyError(f"{lexicon}: cannot be read: {error.strerror}") from error
    counts: Counter[bytes] = Counter()
    for number, line in enumerate(lines, 1):
        entry = _ENTRY.fullmatch(line.rstrip(b"\r"))
        if entry is None:
            shown = line[:40].decode("utf-8", "replace")
            raise VocabularyError(
                f"{lexicon}: line {number}: a word, a tab or spaces, and a count from 0 on expected, found {shown!r}; "
                "mend the line, or leave it out"
            )
        word = unicodedata.normalize("NFC", entry[1].decode("utf-8", "surrogateescape"))
        counts[word.encode("utf-8", "surrogateescape")] += int(entry[2])
    return (b"%b\t%d" % item for item in counts.items())


def _count(
    texts: Sequence[str | os.PathLike[str]], tokenizer: Tokenizer
) -> tuple[int, Counter[bytes], Mapping[bytes, bytes]]:
    """Count messages and words, and find how words are usually written in the middle of a sentence."""
    if not texts:
        raise TextError("vocabulary: no text given, expected at least one file, one message a line")
    messages = 0
    counts: Counter[bytes] = Counter()
    written: Counter[bytes] = Counter()
    for path in map(Path, texts):
        for line in tokenizer.lines("pg_tokenizer_tokens", path):
            messages += 1
            counts.update(line.split(b" "))
        for line in tokenizer.lines("pg_tokenizer_forms", path):
            written.update(line.split(b" "))
    return messages, counts, _usual_forms(written, tokenizer)


def _usual_forms(written: Counter[bytes], tokenizer: Tokenizer) -> Mapping[bytes, bytes]:
    """How words are written that usually are not written as they stand."""
    forms = list(written)
    words = tokenizer.lines("pg_tokenizer_tokens", b"\n".join(forms)) if forms else []
    times: Counter[bytes] = Counter()
    for form, word in zip(forms, words, strict=True):
        times[word] += written[form]
    pairs = zip(forms, words, strict=True)
    return {word: form for form, word in pairs if form != word and written[form] >= USUAL_SHARE * times[word]}
