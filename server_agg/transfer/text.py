"""The general text of a cycle: messages drawn from a real one, or text that the base model writes."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from phonograd.device_runtime.base.errors import TextError
from phonograd.device_runtime.base.random_words import SplitMix64
from phonograd.device_runtime.text.evaluation import Scorer
from phonograd.device_runtime.text.messages import read_messages
from phonograd.device_runtime.text.sampling import draw_texts
from phonograd.device_runtime.text.vocabulary import EOS, Ids, Vocabulary
from phonograd.server_agg.transfer.settings import TransferSettings

STREAM_TOKENS = 500  # at most, of each of the texts that make up a generated one


def read_general(settings: TransferSettings) -> list[bytes] | None:
    """The messages of the real text; None if the base model writes it. Raises TextError."""
    return None if settings.generated else read_messages(Path(settings.general))


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
    return _end_message(np.concatenate(pieces))


def generated_text(model: Scorer, vocabulary: int, tokens: int, seed: int) -> Ids:
    """Ids [tokens] that a model of `vocabulary` words writes: texts from zero states, one after another."""
    columns = -(-tokens // STREAM_TOKENS)
    words = -(-tokens // columns)
    return _end_message(draw_texts(model, vocabulary, columns, words, seed).ids.T.reshape(-1)[:tokens])


def require_window(ids: Ids, minibatch: int, bptt: int) -> None:
    """Raise TextError unless the text fills a window."""
    expected = minibatch * bptt
    if len(ids) < expected:
        raise TextError(
            f"general text: {expected} tokens expected (one window: minibatch {minibatch} x BPTT {bptt}), found "
            f"{len(ids)}; give more text or raise `transfer_tokens`"
        )


def _end_message(ids: Ids) -> Ids:
    ids[-1] = EOS
    return ids
