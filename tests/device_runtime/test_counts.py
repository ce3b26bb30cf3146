"""Files of counts: what is read, and what is refused."""

from pathlib import Path

import pytest

from phonograd.device_runtime.base.errors import VocabularyError
from phonograd.device_runtime.text.counts import counts_bytes, load_counts
from phonograd.device_runtime.text.vocabulary import Vocabulary

VOCABULARY = Vocabulary((b"<unk>", b"<eos>", b"the", b"\xff", b"it's"))
LINES = [b"<unk>\t1", b"<eos>\t2", b"the\t3", b"\xff\t4", b"it's\t5"]


@pytest.mark.parametrize("counts", [(5, 0, 1, 999_999_999_999_999, 12), (0, 0, 0, 0, 0)])
def test_counts_survive_the_disk(tmp_path: Path, counts: tuple[int, ...]) -> None:
    (tmp_path / "counts.txt").write_bytes(counts_bytes(VOCABULARY, counts))
    assert load_counts(tmp_path / "counts.txt", VOCABULARY).tolist() == list(counts)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "5 lines expected, one a word, found 1"),
        (LINES[:4], "5 lines expected, one a word, found 4"),
        ([*LINES, b"more\t6"], "5 lines expected, one a word, found 6"),
        *(
            ([*LINES[:4], line], 'line 5: "it\'s", a tab and a whole number of at most 15 digits expected, found ')
            for line in (
                *(b"it's 5", b"it's\t", b"it's\t05", b"it's\t-5", b"it's\t+5", b"it's\t5.0"),
                *(b"it's\t1234567890123456", b"it", b"x" * 1000),
            )
        ),
        ([*LINES[:2], LINES[3], LINES[2], LINES[4]], "line 3: 'the', a tab"),
    ],
)
def test_broken_counts_are_refused(tmp_path: Path, lines: list[bytes], said: str) -> None:
    path = tmp_path / "counts.txt"
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    with pytest.raises(VocabularyError) as found:
        load_counts(path, VOCABULARY, "count them again")
    assert said in str(found.value)
    assert str(found.value).endswith("; count them again")
    assert len(str(found.value)) < 400
    with pytest.raises(VocabularyError, match="; export the folder again$"):
        load_counts(path, VOCABULARY)


def test_counts_that_are_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(VocabularyError, match="No such file"):
        load_counts(tmp_path / "counts.txt", VOCABULARY)
