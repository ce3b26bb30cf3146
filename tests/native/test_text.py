"""Text, vocabulary, windows and rehearsal of the native engine, held equal to Python's."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from phonograd.device_runtime.base.errors import TextError, VocabularyError
from phonograd.device_runtime.text.evaluation import MIN_COLUMN_TOKENS
from phonograd.device_runtime.text.messages import read_messages, split_messages, tokenize
from phonograd.device_runtime.text.rehearsal import mix
from phonograd.device_runtime.text.vocabulary import Vocabulary
from phonograd.device_runtime.text.windows import windows
from tests.native.text_tool import NativeError, TextTool, running

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tool(build_tool: Callable[[str, Sequence[Path]], Path]) -> Iterator[TextTool]:
    yield from running(build_tool)


# What text on a phone is made of, and what breaks it.
PIECES = (
    *(b"a", b"Zoe", b"don't", b"o'", b"'", b"''", b"3.5", b"_", b"\x7f", b"\x00", b"?!"),
    *(b"<unk>", b"<UNK>", b"<", b"<unk", b"unk>", b"<eos>"),
    *(b" ", b"\t", b"\r\n", b"\n", b"\n\n", b"\x0b", b"\x0c", b"\x1c", b"\x85"),
    *("\u2018 \u2019 \u201c \u201d \u2026 \u2013 \u2014 \u00a0".encode().split(b" ")),
    *("😀 👩‍👩‍👧 שלום السلام Ünïcode \u202e \ufeff".encode().split(b" ")),
    *(b"\xe2", b"\x80", b"\xe2\x80", b"\x99", b"\xc2", b"\xa0", b"\xff", b"\xf0\x9f", b"\xe2\x80\xe2\x80\x99"),
)
TEXTS = st.one_of(st.binary(max_size=200), st.lists(st.sampled_from(PIECES), max_size=40).map(b"".join))


@given(TEXTS)
@example(b"word " * 20_000)
@example(b"x'" * 50_000)
@example(b"the <unk> <UNK>'s a<unk>b <unk><unk> <unk <<unk> unk> < unk > <eos> <unk>>")
@example("😀שלום ".encode() * 7_000)
@example(b"\x80" * 100_000)
@example(b"\xe2\x80" * 50_000)
@settings(max_examples=400, deadline=None)
def test_tokens_are_pythons(tool: TextTool, message: bytes) -> None:
    assert tool.bytes("tokens", message) == tokenize(message)


def test_the_examples_of_the_python_page(tool: TextTool) -> None:
    lines = [line for line in (ROOT / "docs/python.md").read_text("utf-8").splitlines() if " ->  " in line]
    assert len(lines) > 5
    for text, tokens in (line.split("->  ") for line in lines):
        assert tool.bytes("tokens", text.encode()) == [token.encode() for token in tokens.split(" | ")], text


@given(TEXTS)
@example(b"")
@example(b"\n")
@example(b"one\r\ntwo\r\n\r\n\xc2\xa0\n\x00\nlast")
@settings(max_examples=300, deadline=None)
def test_messages_are_pythons(tool: TextTool, data: bytes) -> None:
    assert tool.bytes("split", data) == split_messages(data)


def test_text_files_are_read_and_refused_as_by_python(tool: TextTool, tmp_path: Path) -> None:
    path = tmp_path / "user.txt"
    path.write_bytes(b"one\n\ntwo")
    assert tool.bytes("read", str(path).encode()) == read_messages(path)
    path.write_bytes(b" \n")
    with pytest.raises(TextError) as error:
        read_messages(path)
    tool.fails_as(error.value, "read", str(path).encode())
    for content in ("one\ntwo".encode("utf-16"), "one".encode("utf-16-be"), b"\xfe\xffone", b"one\ntw\0o\n"):
        path.write_bytes(content)
        with pytest.raises(TextError) as error:
            read_messages(path)
        tool.fails_as(error.value, "read", str(path).encode())
    with pytest.raises(NativeError, match=r"none.txt: cannot be \w+: No such file or directory") as missing:
        tool.ask("read", str(tmp_path / "none.txt").encode())
    assert missing.value.status == TextError.exit_code


LINES = st.lists(st.sampled_from([b"a", b"b", b"'", b'"', b"\\", b"\t", b"\x00", "é שלום".encode(), b"x" * 50, b""]))


@given(st.booleans(), LINES, st.booleans())
@example(True, [b"it's", b"it's"], True)
@example(True, [b"'\"", b"'\"", b"c"], True)
@example(False, [], False)
@example(False, [b""], True)
@example(False, [b"<unk>"], True)
@example(False, ["\u2028 \u00ad \u0085 \u00a0".encode(), b"\r\x7f\x1b"], True)
@settings(max_examples=200, deadline=None)
def test_vocabularies_are_read_and_refused_as_by_python(
    tool: TextTool, good: bool, lines: list[bytes], ended: bool
) -> None:
    data = b"\n".join([b"<unk>", b"<eos>", *lines] if good else lines) + b"\n" * ended
    try:
        expected = Vocabulary(tuple(data.removesuffix(b"\n").split(b"\n")), "vocab.txt")
    except VocabularyError as error:
        tool.fails_as(error, "vocabulary", data)
    else:
        assert tool.numbers("vocabulary", data) == [len(expected)]


def test_vocabulary_files_are_held_to_the_models_size(tool: TextTool, tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes(b"<unk>\n<eos>\na\n")
    assert tool.numbers("load", str(path).encode(), 3) == [3]
    with pytest.raises(VocabularyError) as error:
        Vocabulary.load(path, 4)
    tool.fails_as(error.value, "load", str(path).encode(), 4)


def test_bytes_that_are_no_text_are_named_not_printed(tool: TextTool) -> None:
    with pytest.raises(NativeError, match="found '\N{REPLACEMENT CHARACTER}+ELF' and 'b'$"):
        tool.ask("vocabulary", b"\xff\xfeELF\nb\n")


VOCABULARY = Vocabulary((b"<unk>", b"<eos>", b"the", b"i'm", b"!", "é".encode(), *(b"g%d" % n for n in range(20))))
USER = st.lists(
    st.lists(
        st.sampled_from([b"the", b"THE", b"zzz", b"<unk>", b"g7", "I\u2019m".encode(), "éß".encode()]),
        min_size=1,
        max_size=8,
    ),
    min_size=1,
    max_size=20,
).map(lambda messages: [b" ".join(words) for words in messages])
GENERAL = [b" ".join(b"g%d" % (n * k % 23) for k in range(1 + n % 5)) for n in range(80)]


@given(USER)
@settings(max_examples=50, deadline=None)
def test_streams_are_pythons(tool: TextTool, user: list[bytes]) -> None:
    tool.ask("vocabulary", VOCABULARY.to_bytes())
    assert tool.numbers("stream", b"\n".join(user)) == VOCABULARY.encode(user).tolist()


@given(USER, st.floats(0.05, 1) | st.floats(0, 1, exclude_min=True), st.integers(0, 2**64 - 1))
# User's tokens and shares whose general tokens are halves: 34.5, 80.5 and 149.5 go to the even neighbour.
@example([b"g1 g2"], 0.08, 1)
@example([b"g1 g2 g3 g4 g5 g6"], 0.08, 2**64 - 1)
@example([b"g1 g2 g3", b"g4 g5 g6 g7", b"the i'm !"], 0.08, 2**63)
@example([b"g1"], 1.0, 3)
@example([b"g1"], 0.9999, 3)
@example([b"g1"], 1e-300, 3)
@example([b"g1"], 5e-324, 3)
@settings(max_examples=300, deadline=None)
def test_the_same_seed_draws_the_same_stream(tool: TextTool, user: list[bytes], share: float, seed: int) -> None:
    tool.ask("vocabulary", VOCABULARY.to_bytes())
    request = (b"\n".join(user), b"\n".join(GENERAL), share.hex(), seed)
    try:
        expected = mix(user, GENERAL, share, VOCABULARY, seed)
    except TextError as error:
        tool.fails_as(error, "mix", *request)
    else:
        found = tool.ask("mix", *request)
        assert [int(word) for word in found[:2]] == [expected.user_tokens, expected.general_tokens]
        assert float.fromhex(found[2]) == expected.user_share
        assert [int(word) for word in found[3:]] == expected.stream.tolist()


def test_shares_of_the_examples_are_halves() -> None:
    assert [tokens * (1 - 0.08) / 0.08 for tokens in (3, 7, 13)] == [34.5, 80.5, 149.5]


@pytest.mark.parametrize("share", [0.0, -0.5, 1.5, float("nan"), float("inf")])
def test_a_share_outside_its_range_is_refused_as_by_python(tool: TextTool, share: float) -> None:
    tool.ask("vocabulary", VOCABULARY.to_bytes())
    with pytest.raises(TextError, match=r"expected a number in \(0, 1\]") as error:
        mix([b"a"], [], share, VOCABULARY, 0)
    with pytest.raises(NativeError, match=r"expected a number in \(0, 1\]") as found:
        tool.ask("mix", b"a", b"", share, 0)
    assert found.value.status == error.value.exit_code


@given(st.integers(1, 120), st.integers(1, 12), st.integers(1, 9))
@settings(max_examples=200, deadline=None)
def test_windows_are_pythons(tool: TextTool, length: int, minibatch: int, bptt: int) -> None:
    stream = np.arange(100, 100 + length, dtype=np.int64)
    expected: list[int] = []
    for window in windows(stream, minibatch, bptt):
        expected += [window.predictions, *window.tokens.ravel().tolist(), *window.targets.ravel().tolist()]
    assert tool.numbers("windows", minibatch, bptt, *stream.tolist()) == expected


def test_a_stream_of_nothing_has_no_windows(tool: TextTool) -> None:
    assert tool.numbers("windows", 2, 3) == []


@given(st.integers(1, 50), st.integers(0, 10_000))
@settings(max_examples=50, deadline=None)
def test_evaluation_has_pythons_columns(tool: TextTool, minibatch: int, tokens: int) -> None:
    assert tool.numbers("columns", minibatch, tokens) == [max(1, min(minibatch, tokens // MIN_COLUMN_TOKENS))]
