"""Texts drawn from a model, many at a time, and their likelihood under another."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from phonograd.device_runtime.base.random_words import random_words, stream_of, uniform_numbers
from phonograd.device_runtime.formats.tensor_file import Floats
from phonograd.device_runtime.text.evaluation import Scorer
from phonograd.device_runtime.text.vocabulary import EOS, Ids

SCORES_BYTES = 1 << 26  # of the scores [T·B, V] that a model computes at a time
BLOCK_BYTES = 1 << 20  # of scores that become chances at a time, in a core's cache
SEGMENT = 256  # words whose chances are summed before single words are looked at

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class DrawnTexts:
    """Texts as ids [words, count], and their log P in nats, [count], under the model that they were drawn from."""

    ids: Ids
    log_likelihoods: Doubles


def draw_texts(model: Scorer, vocabulary: int, count: int, words: int, seed: int) -> DrawnTexts:
    """Draw `count` texts of `words` tokens from a model of `vocabulary` words.

    Each starts as a message does, after `<eos>`; `<eos>` may be drawn too. A text depends on the model, the seed and
    its place alone, not on `count`.
    """
    ids = np.empty((words, count), np.int64)
    logs = np.zeros(count)
    streams = [stream_of(seed, f"word {place}") for place in range(words)]
    for texts in batches(count, 4 * vocabulary):
        model.reset()
        last = np.full((1, texts.stop - texts.start), EOS, np.int64)
        for place, stream in enumerate(streams):
            uniforms = uniform_numbers(random_words(stream, texts.start, last.shape[1]))
            scores = model.logits(last)
            for rows in _blocks(scores):
                last[0, rows], own = _draw(scores[rows], uniforms[rows])
                logs[texts][rows] += own
            ids[place, texts] = last[0]
    return DrawnTexts(ids, logs)


def log_likelihoods(model: Scorer, vocabulary: int, ids: Ids) -> Doubles:
    """log P in nats, [count], of texts as ids [words, count] that start as messages do."""
    words, count = ids.shape
    before = np.vstack((np.full((1, count), EOS, np.int64), ids[:-1]))
    result = np.empty(count)
    for texts in batches(count, 4 * vocabulary * words):
        model.reset()
        scores = model.logits(before[:, texts])
        logs = log_chances(scores, ids[:, texts].reshape(-1, 1))
        result[texts] = logs.reshape(words, -1).sum(axis=0)
    return result


def log_chances(scores: Floats, words: Ids) -> Doubles:
    """log P in nats, [rows, n], of n words [rows, n] for each row of scores [rows, V], which are overwritten."""
    logs = np.empty(words.shape)
    for rows in _blocks(scores):
        block = scores[rows]
        block -= block.max(axis=1, keepdims=True)
        logs[rows] = np.take_along_axis(block, words[rows], 1)
        logs[rows] -= np.log(np.exp(block, out=block).sum(axis=1, keepdims=True))
    return logs


def batches(count: int, nbytes: int) -> Iterator[slice]:
    """The texts, each with scores of `nbytes`, that a model reads at a time."""
    return _slices(count, SCORES_BYTES // nbytes)


def _draw(scores: Floats, uniforms: Doubles) -> tuple[Ids, Doubles]:
    """A word for each row of scores [rows, V], which are overwritten, and its log P in nats.

    It is the first word whose cumulated chance passes the uniform. Chances are summed by segment first: single words
    are looked at in one segment only.
    """
    V = scores.shape[1]
    scores -= scores.max(axis=1, keepdims=True)
    weights = np.exp(scores, out=scores)
    starts = np.arange(0, V, SEGMENT)
    sums = np.cumsum(np.add.reduceat(weights, starts, axis=1), axis=1, dtype=np.float64)
    segments, left = _first_above(sums, uniforms)
    columns = starts[segments][:, None] + np.arange(SEGMENT)
    inside = np.take_along_axis(weights, np.minimum(columns, V - 1), 1) * (columns < V)
    places, _ = _first_above(np.cumsum(inside, axis=1, dtype=np.float64), left)
    drawn: Ids = np.minimum(starts[segments] + places, V - 1)
    return drawn, np.log(np.take_along_axis(weights, drawn[:, None], 1)[:, 0] / sums[:, -1])


def _first_above(sums: Doubles, shares: Doubles) -> tuple[Ids, Doubles]:
    """The first place of each row of cumulated sums that is above a share of the row's total, in [0, 1); and what is
    left of the share, as a share of that place's own part.
    """
    points = shares * sums[:, -1]
    places = np.minimum((sums <= points[:, None]).sum(axis=1), sums.shape[1] - 1)
    padded = np.pad(sums, ((0, 0), (1, 0)))
    rows = np.arange(len(sums))
    before = padded[rows, places]
    return places, (points - before) / (padded[rows, places + 1] - before)


def _slices(count: int, size: int) -> Iterator[slice]:
    size = max(1, size)
    return (slice(first, min(count, first + size)) for first in range(0, count, size))


def _blocks(scores: Floats) -> Iterator[slice]:
    return _slices(len(scores), BLOCK_BYTES // (4 * scores.shape[1]))
