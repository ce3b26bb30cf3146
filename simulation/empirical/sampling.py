"""Texts drawn from a model, and their likelihood under another."""

import numpy as np
import numpy.typing as npt

from phonograd.device_runtime.base.random_words import random_words, stream_of, uniform_numbers
from phonograd.device_runtime.engine import Backend
from phonograd.device_runtime.formats.tensor_file import Floats
from phonograd.device_runtime.text.vocabulary import EOS, Ids

BATCH = 256  # texts at a time: their scores are 31 MB at 30,000 words


def draw_texts(model: Backend, count: int, words: int, seed: int) -> Ids:
    """Draw `count` texts of `words` words from the model: ids [words, count].

    Each starts as a message does, after `<eos>`.
    """
    uniforms = uniform_numbers(random_words(stream_of(seed, "texts"), 0, words * count)).reshape(words, count)
    texts = np.empty((words, count), np.int64)
    for first in range(0, count, BATCH):
        stop = min(count, first + BATCH)
        model.reset()
        last = np.full((1, stop - first), EOS, np.int64)
        for place in range(words):
            last = _draw(model.logits(last), uniforms[place, first:stop])[None]
            texts[place, first:stop] = last
    return texts


def log_likelihoods(model: Backend, texts: Ids) -> npt.NDArray[np.float64]:
    """log P(text) in nats, [count], of texts [words, count] that start as messages do."""
    words, count = texts.shape
    result = np.zeros(count)
    for first in range(0, count, BATCH):
        batch = texts[:, first : first + BATCH]
        model.reset()
        before = np.full((1, batch.shape[1]), EOS, np.int64)
        for place in range(words):
            scores = model.logits(before)
            before = batch[place : place + 1]
            chosen = np.take_along_axis(scores, before[0][:, None], 1)[:, 0]
            result[first : first + BATCH] += chosen.astype(np.float64) - _log_sums(scores)
    return result


def _log_sums(scores: Floats) -> npt.NDArray[np.float64]:
    highest = scores.max(axis=1)
    sums: npt.NDArray[np.float64] = highest + np.log(np.exp(scores - highest[:, None]).sum(axis=1, dtype=np.float64))
    return sums


def _draw(scores: Floats, uniforms: npt.NDArray[np.float64]) -> Ids:
    """A word for each row of scores [count, V], by its softmax: the first whose cumulated chance passes the uniform."""
    sums = np.cumsum(np.exp(scores - scores.max(axis=1, keepdims=True)), axis=1, dtype=np.float64)
    below = sums <= (uniforms * sums[:, -1])[:, None]
    drawn: Ids = np.minimum(below.sum(axis=1), scores.shape[1] - 1)
    return drawn
