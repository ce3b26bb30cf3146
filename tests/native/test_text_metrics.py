"""Perplexity, top-1, keystroke savings and suggestions of the native engine, held equal to Python's."""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phonograd.device_runtime.base.errors import TrainingError
from phonograd.device_runtime.formats.tensor_file import Floats
from phonograd.device_runtime.text.evaluation import evaluate
from phonograd.device_runtime.text.kss import PrefixIndex
from phonograd.device_runtime.text.messages import tokenize
from phonograd.device_runtime.text.suggestions import score_next, suggest
from phonograd.device_runtime.text.vocabulary import EOS, Ids, Vocabulary
from tests.native.text_tool import TextTool, running


@pytest.fixture(scope="module")
def tool(build_tool: Callable[[str, Sequence[Path]], Path]) -> Iterator[TextTool]:
    yield from running(build_tool)


WORDS = (b"the", b"them", b"they", b"to", b"a", b"and", b"i", b"i'm", b"!", "é".encode(), "éa".encode(), "😀".encode())
VOCABULARY = Vocabulary((b"<unk>", b"<eos>", *WORDS, b"\x80x", *(b"t%d" % n for n in range(9))))
SENTENCES = st.lists(
    st.lists(st.sampled_from([*WORDS, b"\x80x", b"t3", b"THE", b"zzz", "ßé".encode()]), max_size=12).map(b" ".join),
    max_size=60,
)


def make_table(seed: int, whole: bool, hole: bool) -> Floats:
    """Scores [V,V] for TableScorer."""
    random = np.random.default_rng(seed)
    size = len(VOCABULARY)
    scores = random.integers(0, 4, (size, size)) if whole else random.normal(0, 3, (size, size))
    table: Floats = scores.astype(np.float32)
    if hole:
        table[:, 5] = -np.inf  # "to", which the text then must not hold
    return table


# Few values make ties, many make ranks; -inf is a score that a word may have.
TABLES = st.builds(make_table, st.integers(0, 2**32 - 1), st.booleans(), st.booleans())


class TableScorer:
    """text_tool.cpp's: the row of scores is that of token + 3 * (the token before it in its column)."""

    def __init__(self, table: Floats):
        self._table = table
        self._before: Ids | None = None

    def reset(self) -> None:
        self._before = None

    def logits(self, tokens: Ids) -> Floats:
        before = np.zeros(tokens.shape[1], np.int64) if self._before is None else self._before
        rows = []
        for row in tokens:
            rows.append(self._table[(row + 3 * before) % len(self._table)])
            before = row
        self._before = before
        return np.concatenate(rows)


def load(tool: TextTool, table: Floats) -> None:
    tool.ask("vocabulary", VOCABULARY.to_bytes())
    tool.ask("scores", table.tobytes())


@given(SENTENCES, TABLES, st.integers(1, 6), st.integers(1, 8), st.booleans())
@settings(max_examples=150, deadline=None)
def test_figures_are_pythons(
    tool: TextTool, sentences: list[bytes], table: Floats, minibatch: int, bptt: int, kss: bool
) -> None:
    messages = [b"the end", *filter(None, sentences)]
    if np.isinf(table).any():
        messages = [message for message in messages if b"to" not in tokenize(message)]
    load(tool, table)
    heard: list[tuple[int, int]] = []
    expected = evaluate(
        TableScorer(table), VOCABULARY, messages, minibatch, bptt, kss, lambda *done: heard.append(done)
    )
    found = tool.ask("evaluate", b"\n".join(messages), minibatch, bptt, int(kss))
    assert [int(word) for word in found[:5]] == [expected.tokens, expected.unknown_tokens, *heard[-1], kss]
    perplexity, with_unknown, top1, savings = map(float.fromhex, found[5:])
    assert perplexity == pytest.approx(expected.perplexity, rel=1e-6)
    assert with_unknown == pytest.approx(expected.perplexity_with_unknown, rel=1e-6)
    assert top1 == expected.top1
    assert savings == (0 if expected.kss is None else expected.kss)


@pytest.mark.parametrize("word", [0, 1, 9])
@pytest.mark.parametrize("score", [math.nan, math.inf])
def test_scores_that_are_not_finite_are_an_error(tool: TextTool, word: int, score: float) -> None:
    table = make_table(1, whole=False, hole=False)
    table[:, word] = score
    load(tool, table)
    with pytest.raises(TrainingError) as error, np.errstate(invalid="ignore"):
        evaluate(TableScorer(table), VOCABULARY, [b"the"], 1, 2)
    tool.fails_as(error.value, "evaluate", b"the", 1, 2, 0)


def test_a_perplexity_past_all_numbers_is_infinite(tool: TextTool) -> None:
    table = np.zeros((len(VOCABULARY),) * 2, np.float32)
    table[:, 3] = 1e30
    load(tool, table)
    assert evaluate(TableScorer(table), VOCABULARY, [b"the"], 1, 2).perplexity == math.inf
    assert float.fromhex(tool.ask("evaluate", b"the", 1, 2, 0)[5]) == math.inf


CONTEXTS = st.lists(st.sampled_from([b"the", b"To", b" ", b"\n", b"zzz", b"i'm", b"\xff"]), max_size=30).map(b" ".join)
TYPED = st.sampled_from(
    [b"", b"t", b"T", b"th", b"they", b"theyy", b"i", "i\u2019".encode(), b"\xc3", b"\x80", b"<", b" "]
)


@given(CONTEXTS, TYPED, TABLES, st.integers(1, 7), st.integers(1, 40))
@settings(max_examples=200, deadline=None)
def test_suggestions_are_the_best_of_all_words(
    tool: TextTool, context: bytes, typed: bytes, table: Floats, bptt: int, count: int
) -> None:
    load(tool, table)
    *before, current = context.split(b"\n")
    ids = [EOS]
    for message in before:
        if tokenize(message):
            ids += VOCABULARY.encode([message]).tolist()
    ids += VOCABULARY.encode([current]).tolist()[:-1]
    scores = TableScorer(table).logits(np.array(ids, np.int64)[:, None])[-1]
    prefix = typed.lower().replace("\u2019".encode(), b"'")
    candidates = [word for word in range(2, len(VOCABULARY)) if VOCABULARY.words[word].startswith(prefix)]
    ranked = sorted(candidates, key=lambda word: (-scores[word], word))
    best = ranked[:3]
    assert tool.numbers("suggest", scores.tobytes(), typed, count) == ranked[:count]
    np.testing.assert_array_equal(score_next(TableScorer(table), VOCABULARY, context, bptt), scores)
    assert suggest(PrefixIndex.of(VOCABULARY), scores, typed) == best
