from pathlib import Path

import pytest

from phonograd.device_runtime.base.errors import TextError, VocabularyError
from phonograd.device_runtime.text.messages import read_messages, tokenize
from phonograd.device_runtime.text.vocabulary import Vocabulary


@pytest.mark.parametrize("content", [b"", b"\n \n\t\n"])
def test_an_empty_text_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "user.txt"
    path.write_bytes(content)
    with pytest.raises(TextError, match=f"user.txt: no words found in {len(content)} bytes"):
        read_messages(path)


def test_a_missing_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TextError, match="No such file"):
        read_messages(tmp_path / "none.txt")


def load(tmp_path: Path, content: bytes) -> Vocabulary:
    path = tmp_path / "vocab.txt"
    path.write_bytes(content)
    return Vocabulary.load(path)


def test_a_vocabulary_survives_the_disk(tmp_path: Path) -> None:
    vocabulary = Vocabulary((b"<unk>", b"<eos>", b"\xff", b"a"))
    assert load(tmp_path, vocabulary.to_bytes()).words == vocabulary.words


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<unk>\n<eos>\na\nb\na\n", "'a' is on lines 3 and 5"),
        (b"<unk>\n<eos>\na\n\nb\n", "line 4 is empty"),
        (b"a\nb\n", "must be <unk> and <eos>, found 'a' and 'b'"),
        (b"", "must be <unk> and <eos>"),
        (b"<unk>\n", "must be <unk> and <eos>"),
        (b"\x7fELF" * 10_000, r"found '(\\x7fELF){10}'$"),
    ],
)
def test_a_broken_vocabulary_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(VocabularyError, match=message):
        load(tmp_path, content)


def test_a_vocabulary_of_another_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes(b"<unk>\n<eos>\na\n")
    with pytest.raises(VocabularyError, match="4 words expected by the model, found 3"):
        Vocabulary.load(path, 4)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("one\ntwo\n".encode("utf-16"), "begins with a UTF-16 byte order mark, expected UTF-8"),
        (b"\xfe\xff\0o\0n\0e", "begins with a UTF-16 byte order mark, expected UTF-8"),
        ("one\ntwo\n".encode("utf-32"), "begins with a UTF-32 .* iconv -f UTF-32 -t UTF-8"),
        (b"\0\0\xfe\xff\0\0\0o", "begins with a UTF-32 byte order mark, expected UTF-8"),
        ("one two\n".encode("utf-16-le"), "byte 1 is NUL"),
        (b"one\n" + bytes(range(256)), "byte 4 is NUL"),
    ],
)
def test_what_is_no_text_in_utf8_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "text").write_bytes(content)
    with pytest.raises(TextError, match=said):
        read_messages(tmp_path / "text")


def test_a_mark_of_utf8_is_no_part_of_the_first_word(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes("one two\n\ufeffthree\n".encode("utf-8-sig"))
    found = [tokenize(message) for message in read_messages(tmp_path / "text")]
    assert found == [[b"one", b"two"], [b"three"]]
