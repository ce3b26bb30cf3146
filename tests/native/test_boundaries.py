"""Words of a small corpus a language, beside those that ICU finds: tests/golden/make_boundaries.py."""

import functools
import unicodedata
from collections import Counter
from pathlib import Path

import pytest

from phonograd.device_runtime.text.tokenizer import Tokenizer, plain_tokenizer

FOLDER = Path(__file__).parents[1] / "golden" / "languages"
UNSPACED = {"ja", "th", "zh"}
INSIDE = "'·׳״.,٫٬"  # what a word may have beside letters, digits and the marks on them; in Hebrew, also a quote


@functools.cache
def golden() -> tuple[str, dict[str, list[list[str]]]]:
    """All marks in the corpora, and each language's lines as ICU splits them."""
    _, marks, *rows = (FOLDER / "boundaries.txt").read_text("utf-8").splitlines()
    languages: dict[str, list[list[str]]] = {}
    for row in rows:
        language, *lengths = row.split()
        done = languages.setdefault(language, [])
        rest, parts = texts(language)[len(done)], []
        for length in map(int, lengths):
            parts.append(rest[:length])
            rest = rest[length:]
        assert not rest
        done.append(parts)
    return marks, languages


def texts(language: str) -> list[str]:
    return (FOLDER / f"{language}.txt").read_text("utf-8").splitlines()


@functools.cache
def tokenizer(language: str) -> Tokenizer:
    """Split by ICU's own words where there are no spaces."""
    head = b"<unk>\t0\tturkish\n<eos>\t0" if language == "tr" else b"<unk>\t0\n<eos>\t0"
    if language not in UNSPACED:
        return Tokenizer(head)
    parts = (part for line in golden()[1][language] for part in line if any(map(str.isalpha, part)))
    words = Counter(b"".join(plain_tokenizer().tokens(part.encode())) for part in parts)
    return Tokenizer(head + b"".join(b"\n%b\t%d" % item for item in words.items()))


def tokens(language: str, text: str) -> list[str]:
    return [token.decode() for token in tokenizer(language).tokens(text.encode())]


def ends(parts: list[str]) -> set[int]:
    return {sum(map(len, parts[: n + 1])) for n in range(len(parts))}


def is_tailored(text: str, at: int) -> bool:
    """Whether a boundary that UAX #29 lacks is FORMAT.md's: after an elision, and where a mark joins no letters."""
    before, after = text[at - 1], text[at : at + 1]
    return (before == "'" and after.isalpha()) or (
        bool({before, after} & {".", ":", "_"}) and not (before + after).strip(".:_").isdigit()
    )


@pytest.mark.parametrize("language", sorted(path.stem for path in FOLDER.glob("??.txt")))
def test_words_end_where_icu_ends_them(language: str) -> None:
    right = extra = missed = 0
    for line in golden()[1][language]:
        ours = tokens(language, "".join(line))
        folded = ["".join(tokens(language, part)) for part in line]
        assert "".join(folded) == "".join(ours)
        a, b = ends([part for part in folded if part]), ends(ours)
        extra += sum(not is_tailored("".join(ours), at) for at in b - a)
        right, missed = right + len(a & b), missed + len(a - b)
    assert 2 * right / (2 * right + extra + missed) >= (0.95 if language in UNSPACED else 0.99)


@pytest.mark.parametrize("language", sorted(path.stem for path in FOLDER.glob("??.txt")))
def test_no_word_has_a_mark_or_a_twin(language: str) -> None:
    types = {token for line in texts(language) for token in tokens(language, line)}
    glued = {*golden()[0]} - {*INSIDE, '"' * (language == "he")}
    assert [word for word in types if any(map(str.isalnum, word)) and glued & {*word}] == []
    twins = Counter(unicodedata.normalize("NFC", word.casefold()) for word in types)
    assert [word for word, count in twins.items() if count > 1] == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("L’homme n'est pas dell'anno, vent'anni", "l' homme n' est pas dell' anno , vent' anni"),
        ("don't o'clock rock'n'roll aujourd'hui s'more", "don't o'clock rock'n'roll aujourd'hui s'more"),
        ("10am 80's 3.14 1,000 10:30 U.S. a_b", "10am 80's 3.14 1,000 10 : 30 u . s . a _ b"),
        ("KTX로 2시간 '네'라고 서울·부산", "ktx 로 2 시간 ' 네 ' 라고 서울 · 부산"),
        ("👍🏽👨‍👩‍👧🇨🇦🇮🇪😂😂", "👍🏽 👨‍👩‍👧 🇨🇦 🇮🇪 😂 😂"),
    ],
)
def test_words_as_tailored(text: str, words: str) -> None:
    assert tokens("en", text) == words.split()
