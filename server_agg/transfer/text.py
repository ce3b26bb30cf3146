"""The general text of a cycle: messages drawn from a real one, or text that the base model writes."""

from collections.abc import Sequence

import numpy as np

from phonograd.device_runtime.base.errors import TextError
from phonograd.device_runtime.base.random_words import SplitMix64, random_words, stream_of, uniform_numbers
from phonograd.device_runtime.engine.backend import Backend
from phonograd.device_runtime.text.vocabulary import EOS, Ids, Vocabulary

COLUMNS = 100  # of generated text, written side by side


def drawn_text(messages: Sequence[bytes], vocabulary: Vocabulary, tokens: int, seed: int) -> Ids:
    """Ids [N] of messages drawn without repetition, N = `tokens`, or fewer if the text is shorter."""
    order = list(range(len(messages)))
    SplitMix64(seed).shuffle(order)
    pieces: list[Ids] = []
    left = tokens
    for place in order:
        if left <= 0:
            break
        pieces.append(vocabulary.encode([messages[place]])[:left])
        left -= len(pieces[-1])
    return _ended(np.concatenate(pieces))


def generated_text(model: Backend, tokens: int, seed: int) -> Ids:
    """Ids [tokens] that the model writes at temperature 1: columns of running text, each from zero states."""
    columns = min(COLUMNS, tokens)
    height = -(-tokens // columns)
    words = random_words(stream_of(seed, "generated text"), 0, height * columns)
    uniforms = uniform_numbers(words).reshape(height, columns)
    text = np.empty((height, columns), np.int64)
    model.reset()
    last = np.full((1, columns), EOS, np.int64)
    for place in range(height):
        scores = model.logits(last)
        sums = np.cumsum(np.exp(scores - scores.max(axis=1, keepdims=True)), axis=1, dtype=np.float64)
        below = sums <= (uniforms[place] * sums[:, -1])[:, None]
        last = np.minimum(below.sum(axis=1), scores.shape[1] - 1)[None]
        text[place] = last
    text[-1] = EOS
    return _ended(text.T.reshape(-1)[:tokens])


def require_window(ids: Ids, minibatch: int, bptt: int) -> None:
    """Raise TextError unless the text fills a window."""
    expected = minibatch * bptt
    if len(ids) < expected:
        raise TextError(
            f"general text: {expected} tokens expected (one window: minibatch {minibatch} x BPTT {bptt}), found "
            f"{len(ids)}; give more text or raise `transfer_tokens`"
        )


def _ended(ids: Ids) -> Ids:
    """The text with an end of message at its end."""
    ids[-1] = EOS
    return ids
