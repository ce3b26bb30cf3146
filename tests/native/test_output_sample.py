"""The output sample's draw and the counts it is drawn by, of the native engine: Python's, to the bit."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phonograd.device_runtime.base.errors import VocabularyError
from phonograd.device_runtime.text.counts import counts_bytes, load_counts
from phonograd.device_runtime.text.output_sample import SampleDraw, draw_output_sample
from phonograd.device_runtime.text.vocabulary import Vocabulary
from tests.native.text_tool import NativeError, TextTool, running

COUNT = st.one_of(st.integers(0, 20), st.integers(0, 10**15 - 1))
VOCABULARY = Vocabulary((b"<unk>", b"<eos>", b"the", b"\xff", b"it's"))


@pytest.fixture(scope="module")
def tool(build_tool: Callable[[str, Sequence[Path]], Path]) -> Iterator[TextTool]:
    yield from running(build_tool)


def hold_to_python(tool: TextTool, stream: list[int], counts: list[int], drawn: int, seed: int) -> int:
    """The candidates that Python and the engine drew, which must be the same ones with the same shifts."""
    expected = draw_output_sample(np.array(stream, np.int64), np.array(counts, np.int64), SampleDraw(drawn, seed))
    found = tool.ask("sample", drawn, seed, len(counts), *counts, *stream)
    assert [int(word) for word in found[::2]] == expected.candidates.tolist()
    shifts = np.array([float.fromhex(word) for word in found[1::2]], np.float32)
    assert shifts.tobytes() == expected.shifts.tobytes()
    return len(expected)


@given(
    st.lists(COUNT, min_size=2, max_size=60),
    st.lists(st.integers(0, 59)),
    st.integers(0, 70),
    st.integers(0, 2**64 - 1),
)
@settings(max_examples=150, deadline=None)
def test_the_draw_is_pythons(tool: TextTool, counts: list[int], words: list[int], drawn: int, seed: int) -> None:
    hold_to_python(tool, [word % len(counts) for word in words], counts, drawn, seed)


def test_a_draw_of_a_whole_vocabulary_is_pythons(tool: TextTool) -> None:
    counts = [1_000_000 // (number + 1) for number in range(30_000)]
    sizes = {hold_to_python(tool, list(range(0, 3000, 2)), counts, 2000, seed) for seed in range(3)}
    assert all(3300 < size < 3700 for size in sizes)


def test_counts_are_read_as_by_python(tool: TextTool, tmp_path: Path) -> None:
    tool.ask("vocabulary", VOCABULARY.to_bytes())
    path = tmp_path / "counts.txt"
    for counts in ((5, 0, 1, 999_999_999_999_999, 12), (0, 0, 0, 0, 0)):
        path.write_bytes(counts_bytes(VOCABULARY, counts))
        assert tool.numbers("counts", str(path).encode()) == load_counts(path, VOCABULARY).tolist() == list(counts)


LINES = [b"<unk>\t1", b"<eos>\t2", b"the\t3", b"\xff\t4", b"it's\t5"]


@pytest.mark.parametrize(
    "lines",
    [
        [],
        LINES[:4],
        [*LINES, b"more\t6"],
        [*LINES[:4], b"it's 5"],
        [*LINES[:4], b"it's\t"],
        [*LINES[:4], b"it's\t05"],
        [*LINES[:4], b"it's\t-5"],
        [*LINES[:4], b"it's\t+5"],
        [*LINES[:4], b"it's\t5.0"],
        [*LINES[:4], b"it's\t1234567890123456"],
        [*LINES[:2], LINES[3], LINES[2], LINES[4]],
        [*LINES[:4], b"it"],
        [*LINES[:4], b"x" * 1000],
    ],
)
def test_broken_counts_are_refused_as_by_python(tool: TextTool, tmp_path: Path, lines: list[bytes]) -> None:
    tool.ask("vocabulary", VOCABULARY.to_bytes())
    path = tmp_path / "counts.txt"
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    with pytest.raises(VocabularyError) as error:
        load_counts(path, VOCABULARY)
    tool.fails_as(error.value, "counts", str(path).encode())


def test_counts_that_are_not_there_are_refused(tool: TextTool, tmp_path: Path) -> None:
    tool.ask("vocabulary", VOCABULARY.to_bytes())
    with pytest.raises(NativeError, match="No such file") as found:
        tool.ask("counts", str(tmp_path / "counts.txt").encode())
    assert found.value.status == VocabularyError.exit_code
