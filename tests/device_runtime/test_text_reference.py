"""Text as the library reads it, held to the reference (tests/reference/text.py) on whatever text there is."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from phonograd.device_runtime.base.errors import TextError
from phonograd.device_runtime.engine.backend import IGNORED
from phonograd.device_runtime.formats.tensor_file import Floats
from phonograd.device_runtime.text.evaluation import evaluate
from phonograd.device_runtime.text.messages import split_messages, tokenize
from phonograd.device_runtime.text.output_sample import SampleDraw, draw_output_sample
from phonograd.device_runtime.text.rehearsal import mix
from phonograd.device_runtime.text.vocabulary import EOS, Ids, Vocabulary
from phonograd.device_runtime.text.windows import windows
from tests.reference import text as reference

ROOT = Path(__file__).parents[2]
# What text on a phone is made of, and what breaks it.
PIECES = (
    *(
        b"a",
        b"Zoe",
        b"don't",
        b"o'",
        b"'",
        b"''",
        b"3.5",
        b"1",
        b",",
        b".",
        b":",
        b"-",
        b"_",
        b"#",
        b"\x7f",
        b"\x00",
        b"?!",
    ),
    *(b"<unk>", b"<UNK>", b"<", b"<unk", b"unk>", b"<eos>", b"l'", b"Qu'", b"dell'anno", b"I"),
    *(b" ", b"\t", b"\r\n", b"\n", b"\n\n", b"\x0b", b"\x0c", b"\x1c", b"\x85"),
    *"\u2018 \u2019 \u201c \u201d \u2026 \u2013 \u2014 \u00a0 \u3000 \u00b4 \u02bc \u00b7 \u00bf".encode().split(b" "),
    # What is not seen; marks, of which some compose; letters that fold; emoji; Hebrew, Arabic, Indic, Hangul.
    *"\u00ad \u200b \u200c \u200d \u2060 \ufe0f \ufeff \u202e \U000e0067".encode().split(b" "),
    *"\u0301 \u0307 \u0323 \u0345 \u0308 \u20e3 \u093c \u094d \u09be \u3099 \u0e48 \u0e33".encode().split(b" "),
    *"é \u00c9 \u0130 \u1e9e \u03a3 \u03c2 \u041f \u212a \u1f80 \u0958 \u212b".encode().split(b" "),
    *"\ufb01 \u00bd \u0663 \u066b".encode().split(b" "),
    *"\U0001f600 \U0001f44d \U0001f3fd \u2764 \u00a9 \U0001f1e9 \U0001f1ea".encode().split(b" "),
    *"\U0001f3f4 \U0001f469\u200d\U0001f467".encode().split(b" "),
    *"\u05d0 \u05ea \u0627 \u0641 \u0915 \u09ac \u0bae \uac00 \u1100 \u1161 \u11a8".encode().split(b" "),
    *"\u0e01 \u0e40 \u1780 \u4f60 \u597d \u304b \u30ab \u30fc \U00020000 \U0002f800".encode().split(b" "),
    *(b"\xe2", b"\x80", b"\xe2\x80", b"\x99", b"\xc2", b"\xa0", b"\xff", b"\xf0\x9f", b"\xe2\x80\xe2\x80\x99"),
)
TEXTS = st.one_of(
    st.binary(max_size=200),
    st.lists(st.sampled_from(PIECES), max_size=40).map(b"".join),
    st.text(max_size=60).map(str.encode),
)


@given(TEXTS)
@example(b"x'" * 50_000)
@example("I\u2019m \u201chere\u201d\u2026 a\u2013b\u2014c\u00a0d \u00c0B".encode())
@example(b"don't STOP... 'tis o'clock' '' 3.5 a_b\n\n  \r\n\xc2\xa0 \xc2\xa0\ntwo \xff\xc3 three")
@example(b"the <unk> <UNK>'s a<unk>b <unk><unk> <unk <<unk> unk> < unk > <eos> <unk>>")
@example("😀שלום ".encode() * 7_000)
@example(b"\x80" * 100_000)
@example(b"j'\xa0")  # no vowel, but the end of one
@example(b"\xe2\x80" * 50_000)
@example("\u0345\u093c\u200d\u0bbe".encode())  # marks that change places
@settings(max_examples=200, deadline=None)
def test_tokens_and_messages(data: bytes) -> None:
    messages = reference.split_messages(data)
    assert split_messages(data) == messages
    assert [tokenize(message) for message in messages] == [reference.tokenize(message) for message in messages]


def test_the_examples_of_the_python_page() -> None:
    lines = [line for line in (ROOT / "docs/python.md").read_text("utf-8").splitlines() if " ->  " in line]
    assert len(lines) > 5
    for text, tokens in (line.split("->  ") for line in lines):
        assert tokenize(text.encode()) == [token.encode() for token in tokens.split(" | ")], text


WORDS = (b"<unk>", b"<eos>", b"the", b"i'm", b"!", b"<", b"unk", b">", "é".encode(), *(b"g%d" % n for n in range(20)))
VOCABULARY = Vocabulary(WORDS)
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


@given(USER, st.floats(0.15, 1), st.integers(0, 2**64 - 1))
# User's tokens and shares whose general tokens are halves: 34.5, 80.5 and 149.5 go to the even neighbour.
@example([b"g1 g2"], 0.08, 1)
@example([b"g1 g2 g3 g4 g5 g6"], 0.08, 2**64 - 1)
@example([b"g1 g2 g3", b"g4 g5 g6 g7", b"the i'm !"], 0.08, 2**63)
@example([b"g1"], 1.0, 3)
@example([b"g1"], 0.9999, 3)
@settings(max_examples=60, deadline=None)
def test_streams_and_their_draw(user: list[bytes], share: float, seed: int) -> None:
    np.testing.assert_array_equal(VOCABULARY.encode(user), reference.encode(WORDS, user))
    try:
        found = mix(user, GENERAL, share, VOCABULARY, seed)
    except TextError:
        assert len(reference.encode(WORDS, user)) * (1 - share) / share > len(reference.encode(WORDS, GENERAL))
        return
    stream, *tokens = reference.mix(WORDS, user, GENERAL, share, seed)
    np.testing.assert_array_equal(found.stream, stream)
    assert [found.user_tokens, found.general_tokens] == tokens
    own = reference.encode(WORDS, user)
    assert found.user_unknown_share == (own == 0).sum() / (own != 1).sum()


def test_shares_of_the_examples_are_halves() -> None:
    assert [tokens * (1 - 0.08) / 0.08 for tokens in (3, 7, 13)] == [34.5, 80.5, 149.5]


def test_a_hand_made_layout() -> None:
    layout = list(windows(np.array([5, 6, 7, 8, 9]), minibatch=2, bptt=2))
    # columns: <eos>5 67 | 789.. ; three rows, the second window has one real row
    assert [w.tokens.tolist() for w in layout] == [[[EOS, 7], [5, 8]], [[6, EOS], [EOS, EOS]]]
    assert [w.targets.tolist() for w in layout] == [[[5, 8], [6, 9]], [[7, IGNORED], [IGNORED, IGNORED]]]
    assert [w.predictions for w in layout] == [4, 1]


@given(st.integers(0, 120), st.integers(1, 12), st.integers(1, 9))
@settings(max_examples=50, deadline=None)
def test_windows(length: int, minibatch: int, bptt: int) -> None:
    stream = np.arange(100, 100 + length)
    found, expected = windows(stream, minibatch, bptt), list(reference.windows(stream, minibatch, bptt))
    assert len(found) == len(expected)
    for window, (tokens, targets) in zip(found, expected, strict=True):
        np.testing.assert_array_equal(window.tokens, tokens)
        np.testing.assert_array_equal(window.targets, targets)
        assert window.predictions == np.count_nonzero(targets != IGNORED) > 0


COUNT = st.one_of(st.integers(0, 20), st.integers(0, 10**15 - 1))


def hold_to_reference(stream: list[int], counts: list[int], drawn: int, seed: int) -> int:
    """The size of the sample, which must have the reference's candidates and bits of shifts."""
    given_ = np.array(stream, np.int64), np.array(counts, np.int64)
    found, (candidates, shifts) = (
        draw_output_sample(*given_, SampleDraw(drawn, seed)),
        reference.output_sample(*given_, drawn, seed),
    )
    np.testing.assert_array_equal(found.candidates, candidates)
    assert found.shifts.tobytes() == shifts.tobytes()
    return len(found)


@given(
    st.lists(COUNT, min_size=2, max_size=60),
    st.lists(st.integers(0, 59)),
    st.integers(0, 70),
    st.integers(0, 2**64 - 1),
)
@settings(max_examples=40, deadline=None)
def test_output_samples(counts: list[int], words: list[int], drawn: int, seed: int) -> None:
    hold_to_reference([word % len(counts) for word in words], counts, drawn, seed)


def test_the_output_sample_of_a_whole_vocabulary() -> None:
    counts = [1_000_000 // (number + 1) for number in range(30_000)]
    assert 3300 < hold_to_reference(list(range(0, 3000, 2)), counts, 2000, 1) < 3700


SPELLED = (b"the", b"them", b"they", b"to", b"a", b"and", b"i", b"i'm", b"!", "é".encode(), "éa".encode(), b"\x80x")
SCORED = Vocabulary((b"<unk>", b"<eos>", *SPELLED, "😀".encode(), *(b"t%d" % n for n in range(9))))
SENTENCES = st.lists(
    st.lists(st.sampled_from([*SPELLED, b"t3", b"THE", b"zzz", "ßé".encode()]), min_size=1, max_size=12).map(b" ".join),
    min_size=1,
    max_size=60,
)


class TableScorer:
    """The row of scores is that of token + 3 * (the token before it in its column)."""

    def __init__(self, table: Floats):
        self._table = table
        self.reset()

    def reset(self) -> None:
        self._before = np.zeros(0, np.int64)

    def logits(self, tokens: Ids) -> Floats:
        before = self._before if len(self._before) else np.zeros(tokens.shape[1], np.int64)
        rows = np.vstack([before, tokens])
        self._before = tokens[-1]
        scores: Floats = self._table[(tokens + 3 * rows[:-1]) % len(self._table)].reshape(-1, self._table.shape[1])
        return scores


@given(SENTENCES, st.integers(0, 2**32 - 1), st.booleans(), st.booleans(), st.integers(1, 8))
@settings(max_examples=40, deadline=None)
def test_figures(messages: list[bytes], seed: int, ties: bool, hole: bool, bptt: int) -> None:
    """Few values make ties, many make ranks; -inf is a score that a word may have."""
    random, size = np.random.default_rng(seed), len(SCORED)
    table = (random.integers(0, 4, (size, size)) if ties else random.normal(0, 3, (size, size))).astype(np.float32)
    if hole:
        table[:, 5] = -np.inf
        messages = [message for message in messages if b"to" not in tokenize(message)] or [b"the"]
    heard: list[tuple[int, int]] = []
    found = evaluate(TableScorer(table), SCORED, messages, 1, bptt, True, lambda *done: heard.append(done))
    ids = np.concatenate(([1], SCORED.encode(messages)[:-1]))
    expected = reference.figures(SCORED.words, messages, TableScorer(table).logits(ids[:, None]))
    assert heard[-1] == (len(ids), len(ids))
    assert [field.name for field in dataclasses.fields(found)] == [field.name for field in dataclasses.fields(expected)]
    for name, value in dataclasses.asdict(expected).items():
        if (
            "perplexity" in name or "error" in name
        ):  # an error may be far smaller than what float32 rounds in its figure
            value = pytest.approx(value, rel=1e-5, abs=1e-9 + 1e-5 * getattr(expected, name.removesuffix("_error")))
        assert getattr(found, name) == value, name


def test_standard_errors_are_those_of_a_bootstrap_over_messages() -> None:
    """Messages whose tokens are alike: long ones and short ones."""
    random = np.random.default_rng(3)
    n = random.integers(1, 30, 200)
    x = random.poisson(random.gamma(4, 0.5, 200) * n)
    drawn = random.integers(0, 200, (1000, 200))
    spread = float((x[drawn].sum(axis=1) / n[drawn].sum(axis=1)).std())
    assert reference.ratio(x, n, np.arange(200))[1] == pytest.approx(spread, rel=0.15)
    by_token = float(np.sqrt(x.sum()) / n.sum())  # as if tokens were independent
    assert spread > 1.5 * by_token


@given(st.integers(1, 50), st.integers(1, 10_000))
@settings(max_examples=30, deadline=None)
def test_short_texts_are_evaluated_in_fewer_columns(minibatch: int, tokens: int) -> None:
    heard: list[tuple[int, ...]] = []

    class StopSignals(TableScorer):
        def logits(self, tokens: Ids) -> Floats:
            heard.append(tokens.shape)
            return super().logits(tokens)

    text = [b"the"] * (tokens // 2) or [b"the"]
    evaluate(StopSignals(np.zeros((len(SCORED),) * 2, np.float32)), SCORED, text, minibatch, 7)
    assert {shape[1] for shape in heard} == {max(1, min(minibatch, 2 * len(text) // 100))}
