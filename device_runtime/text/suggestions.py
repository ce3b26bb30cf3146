"""A keyboard's three suggestions: the most probable next words. FORMAT.md, "Keystroke savings"."""

from dataclasses import dataclass

import numpy as np

from phonograd.device_runtime.formats.tensor_file import Floats
from phonograd.device_runtime.text.evaluation import Scorer
from phonograd.device_runtime.text.kss import SUGGESTIONS, PrefixIndex
from phonograd.device_runtime.text.messages import fold, split_messages
from phonograd.device_runtime.text.vocabulary import EOS, Vocabulary


@dataclass(frozen=True)
class Suggestion:
    """A word that may come next, and its probability among all words."""

    word: str
    probability: float


def score_next(scorer: Scorer, vocabulary: Vocabulary, context: bytes, bptt: int) -> Floats:
    """Scores [V] float32 of every word as the next one after `context`.

    context: messages, one a line; the last line is the message being written. It is scored in windows of `bptt` tokens.
    """
    before, _, current = context.rpartition(b"\n")
    ids = np.concatenate(([EOS], vocabulary.encode(split_messages(before)), vocabulary.encode([current])[:-1]))
    scorer.reset()
    for start in range(0, len(ids), bptt):
        scores = scorer.logits(ids[start : start + bptt, np.newaxis])
    last: Floats = scores[-1]
    return last


def suggest(index: PrefixIndex, scores: Floats, typed: bytes) -> list[int]:
    """Ids of the 3 words with the highest scores [V] that begin with `typed`, best first; fewer if fewer words match.

    `typed` is folded as text is. Ties go to the lower id. Never `<unk>` or `<eos>`.
    """
    candidates = index.with_prefix(fold(typed))
    best = np.lexsort((candidates, -scores[candidates]))[:SUGGESTIONS]
    return [int(word) for word in candidates[best]]
