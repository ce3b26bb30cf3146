import dataclasses
from pathlib import Path

import pytest

from phonograd.device_runtime.base.errors import TextError, VocabularyError
from phonograd.device_runtime.text.messages import tokenize
from phonograd.device_runtime.text.vocabulary import Vocabulary
from phonograd.export.recasing import Miss, measure_recasing
from phonograd.export.vocabulary_builder import build_vocabulary, coverage


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_bytes(b"the cat the dog\nThe bee, a cat\n\nzebra apple\n")
    return path


def test_words_come_by_count_then_by_bytes(text: Path) -> None:
    built = build_vocabulary([text], 7)
    assert built.words == (b"<unk>", b"<eos>", b"the", b"cat", b",", b"a", b"apple")
    assert built.counts == (3, 3, 3, 2, 1, 1, 1)  # left out: bee, dog, zebra; three messages, the empty line uncounted
    assert coverage(built) == 8 / 11


def test_the_written_files_read_back(tmp_path: Path, text: Path) -> None:
    built, path = build_vocabulary([text], 4), tmp_path / "vocab.txt"
    built.write(path)
    assert dataclasses.replace(Vocabulary.load(path, 4), source=built.source) == built
    assert path.read_bytes() == b"<unk>\t6\n<eos>\t3\nthe\t3\ncat\t2\n"


WRITTEN = """Paris is what I saw in Paris, and I said so.
No one sees Paris. Then NASA called me, I think. Us and \u201cUs\u201d
Hello Paris
the rise of a house of Paris: May, may I?
i like e-mail, iPhone; all iPhone and iphone, all iPhone and iPhone
THE RISE OF THE HOUSE
the \u039f\u0394\u039f\u03a3 and \u03bf\u03b4\u03cc\u03c2 <unk> Caf\u0065\u0301
"""


def test_forms_are_those_in_the_middle_of_sentences(tmp_path: Path) -> None:
    """Headings, sentences' starts, and what comes after a quote say nothing; four of five occurrences make a form."""
    path, counted = tmp_path / "text", tmp_path / "vocab.txt"
    path.write_text(WRITTEN)
    built = build_vocabulary([path], 60, reserve=True)
    forms = {form.decode(): word.decode() for word, form in zip(built.words, built.forms or (), strict=True) if form}
    assert forms == {
        "Paris": "paris", "I": "i", "iPhone": "iphone", "NASA": "nasa", "ΟΔΟΣ": "οδοσ", "οδός": "οδόσ", "Café": "café",
    }  # fmt: skip
    built.write(counted)
    again = build_vocabulary([path], 3, words=counted)
    assert dataclasses.replace(again, source=built.source) == built
    assert tokenize(b"Paris") == [b"paris"]


def test_recasing_is_measured_in_the_middle_of_sentences(tmp_path: Path) -> None:
    text, held_out = tmp_path / "text", tmp_path / "held-out"
    text.write_text(WRITTEN)
    held_out.write_text("we like paris, Paris and Café\nif I call Paris an unheard Name\nsee the iPhone and The End\n")
    found = measure_recasing(build_vocabulary([text], 60, reserve=True), [held_out])
    assert (found.written, found.shown) == (6, 6)
    assert (found.precision, found.recall) == (5 / 6, 5 / 6)
    assert found.misses == (Miss("The", "the", 1), Miss("paris", "Paris", 1))


def test_too_few_words_are_refused_with_their_number(text: Path) -> None:
    with pytest.raises(
        VocabularyError,
        match=r"9 distinct words expected .* size of 11, found 8; .* size of 10,",
    ):
        build_vocabulary([text], 11)
    assert len(build_vocabulary([text], 10)) == 10


def test_reserved_words_fill_up_and_no_text_yields_them(text: Path) -> None:
    built = build_vocabulary([text], 12, reserve=True)
    assert built.words[-2:] == (b"<reserved-0>", b"<reserved-1>")
    assert (built.counts or ())[-2:] == (0, 0)
    assert all(tokenize(word) != [word] for word in built.words[-2:])


def test_a_literal_unk_of_the_text_is_counted_as_left_out(tmp_path: Path) -> None:
    path = tmp_path / "wikitext.txt"
    path.write_bytes(b"a <unk> b <unk> a c\n")
    built = build_vocabulary([path], 4)
    assert built.words == (b"<unk>", b"<eos>", b"a", b"b")
    assert built.counts == (3, 1, 2, 1)  # left out: <unk> twice, and c
    assert coverage(built) == 3 / 6


@pytest.mark.parametrize("size", [-1, 0, 2])
def test_a_size_without_room_for_a_word_is_refused(text: Path, size: int) -> None:
    with pytest.raises(VocabularyError, match=f"size {size}, expected at least 3"):
        build_vocabulary([text], size)


def test_empty_and_missing_texts_are_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty.txt"
    empty.write_bytes(b" \n\n")
    for texts in ([], [empty], [tmp_path / "missing.txt"]):
        with pytest.raises(TextError):
            build_vocabulary(texts, 5)


def test_a_lexicon_splits_what_has_no_spaces(tmp_path: Path) -> None:
    text, lexicon = tmp_path / "text.txt", tmp_path / "words.lex"
    text.write_text("研究生命起源, 研究\n")
    lexicon.write_text("研究\t50\n研究生\t10\n生命 40\n起源\t9\n研究\t1\n")  # a word that comes twice counts as both
    built = build_vocabulary([text], 6, lexicon=lexicon)
    assert built.words[2:] == ("研究".encode(), b",", "生命".encode(), "起源".encode())
    assert build_vocabulary([text], 4).words[2:] == ("研".encode(), "究".encode())
    lexicon.write_text("\u304b\u3099\u304f 5\n")
    text_2 = tmp_path / "kana"
    text_2.write_text("\u304c\u304f\n")
    assert build_vocabulary([text_2], 3, lexicon=lexicon).words[2] == "\u304c\u304f".encode()
    lexicon.write_text("研究\t50\n研究生\n")
    with pytest.raises(
        VocabularyError,
        match="line 2: a word, a tab or spaces, and a count from 0 on expected, found '研究生'",
    ):
        build_vocabulary([text], 6, lexicon=lexicon)
