from pathlib import Path

import pytest

from phonograd.device_runtime.base.errors import TextError, VocabularyError
from phonograd.device_runtime.text.messages import tokenize
from phonograd.device_runtime.text.vocabulary import Vocabulary
from phonograd.export.vocabulary_builder import build_vocabulary, counts_path


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_bytes(b"the cat the dog\nThe bee, a cat\n\nzebra apple\n")
    return path


def test_words_come_by_count_then_by_bytes(text: Path) -> None:
    built = build_vocabulary([text], 7)
    assert built.vocabulary.words == (b"<unk>", b"<eos>", b"the", b"cat", b",", b"a", b"apple")
    assert built.counts == (
        3,
        3,
        3,
        2,
        1,
        1,
        1,
    )  # left out: bee, dog, zebra; three messages, the empty line uncounted
    assert built.coverage == 8 / 11


def test_the_written_files_read_back(tmp_path: Path, text: Path) -> None:
    built, path = build_vocabulary([text], 4), tmp_path / "vocab.txt"
    built.write(path)
    assert Vocabulary.load(path, 4).words == built.vocabulary.words
    assert counts_path(path).read_bytes() == b"<unk>\t6\n<eos>\t3\nthe\t3\ncat\t2\n"


def test_too_few_words_are_refused_with_their_number(text: Path) -> None:
    with pytest.raises(VocabularyError, match=r"9 distinct words expected in the texts, found 8; .* ask for 10 words"):
        build_vocabulary([text], 11)
    assert len(build_vocabulary([text], 10).vocabulary) == 10


def test_reserved_words_fill_up_and_no_text_yields_them(text: Path) -> None:
    built = build_vocabulary([text], 12, reserve=True)
    assert built.vocabulary.words[-2:] == (b"<reserved-0>", b"<reserved-1>")
    assert built.counts[-2:] == (0, 0)
    assert all(tokenize(word) != [word] for word in built.vocabulary.words[-2:])


def test_a_literal_unk_of_the_text_is_counted_as_left_out(tmp_path: Path) -> None:
    path = tmp_path / "wikitext.txt"
    path.write_bytes(b"a <unk> b <unk> a c\n")
    built = build_vocabulary([path], 4)
    assert built.vocabulary.words == (b"<unk>", b"<eos>", b"a", b"b")
    assert built.counts == (3, 1, 2, 1)  # left out: <unk> twice, and c
    assert built.coverage == 3 / 6


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
