from pathlib import Path

import numpy as np
import pytest

from phonograd.device_runtime.base.errors import TextError
from phonograd.export.corpus import evaluation_columns, load_corpus, training_columns
from tests.support.pretraining import WORDS


def test_columns_follow_each_other_in_the_stream() -> None:
    columns = training_columns(np.arange(24), minibatch=2, bptt=4)
    np.testing.assert_array_equal(columns.inputs[:, 0], range(11))
    np.testing.assert_array_equal(columns.inputs[:, 1], range(11, 22))
    np.testing.assert_array_equal(columns.targets, columns.inputs + 1)
    assert columns.windows == 3
    assert [len(columns.window(index)[0]) for index in range(3)] == [4, 4, 3]
    assert evaluation_columns(np.arange(9), minibatch=20, bptt=4).minibatch == 2
    assert evaluation_columns(np.arange(2), minibatch=20, bptt=4).windows == 1


def test_a_twentieth_is_held_out_where_no_validation_text_is_given(tmp_path: Path) -> None:
    text, other = tmp_path / "a.txt", tmp_path / "b.txt"
    text.write_bytes(b"the cat\n" * 39 + b"dog ran home\n")
    other.write_bytes(b"mat\n")
    corpus = load_corpus([text], WORDS)
    assert list(corpus.validation) == [b"the cat", b"dog ran home"]
    assert len(corpus.training) == 38 * 3
    given = load_corpus([text], WORDS, other)
    assert list(given.validation) == [b"mat"]
    assert len(given.training) == 39 * 3 + 4
    with pytest.raises(TextError, match="1 message found, expected at least 2"):
        load_corpus([other], WORDS)
    with pytest.raises(TextError, match="no text given"):
        load_corpus([], WORDS)
