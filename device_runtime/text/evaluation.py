"""Perplexity, top-1 accuracy and keystroke savings of a model on a text."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from phonograd.device_runtime.base.errors import TrainingError
from phonograd.device_runtime.formats.tensor_file import Floats
from phonograd.device_runtime.text.kss import PrefixIndex, character_starts
from phonograd.device_runtime.text.messages import tokenize
from phonograd.device_runtime.text.vocabulary import EOS, UNK, Ids, Vocabulary
from phonograd.device_runtime.text.windows import IGNORED, columns, windows

# Each column starts from zero states; with at least this many tokens in each, the start matters little.
MIN_COLUMN_TOKENS = 100


class Scorer(Protocol):
    """The part of a Backend that evaluation needs."""

    def reset(self) -> None:
        """See Backend.reset."""
        ...

    def logits(self, tokens: Ids) -> Floats:
        """See Backend.logits."""
        ...


@dataclass(frozen=True)
class Evaluation:
    """The scores of a model on a text.

    perplexity: without unknown words, as in paper P; perplexity_with_unknown: over all tokens, `<unk>` by its own
    probability; both count `<eos>`. top1: paper M's AccuracyTop1 over words, where unknown words are misses and `<eos>`
    does not count. kss: P's eq. 5, or None if not requested.
    """

    tokens: int
    unknown_tokens: int
    perplexity: float
    perplexity_with_unknown: float
    top1: float
    kss: float | None


@dataclass
class _Tally:
    known_loss: float = 0.0
    unknown_loss: float = 0.0
    known: int = 0
    unknown: int = 0
    words: int = 0
    hits: int = 0
    characters: int = 0
    typed: int = 0

    def result(self, with_kss: bool) -> Evaluation:
        tokens = self.known + self.unknown
        return Evaluation(
            tokens=tokens,
            unknown_tokens=self.unknown,
            perplexity=_perplexity(self.known_loss, self.known),
            perplexity_with_unknown=_perplexity(self.known_loss + self.unknown_loss, tokens),
            top1=self.hits / max(1, self.words),
            kss=(self.characters - self.typed) / max(1, self.characters) if with_kss else None,
        )


def _perplexity(loss: float, count: int) -> float:
    try:
        return math.exp(loss / max(1, count))
    except OverflowError:
        return math.inf


def evaluate(
    scorer: Scorer,
    vocabulary: Vocabulary,
    messages: Sequence[bytes],
    minibatch: int,
    bptt: int,
    kss: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Evaluate messages laid out in at most `minibatch` columns and windows of `bptt` steps.

    `progress` is called with (tokens done, tokens in total). Raises TrainingError if the model's scores are not finite.
    """
    stream = vocabulary.encode(messages)
    lengths = _characters(messages)
    minibatch = max(1, min(minibatch, len(stream) // MIN_COLUMN_TOKENS))
    index = PrefixIndex.of(vocabulary) if kss else None
    tally = _Tally()
    scorer.reset()
    heights = columns(lengths, minibatch, 0)
    for number, window in enumerate(windows(stream, minibatch, bptt)):
        logits = scorer.logits(window.tokens)
        targets = window.targets.reshape(-1)
        counted = np.flatnonzero(targets != IGNORED)
        whole = len(counted) == len(targets)  # then no copy is needed
        _tally_losses(tally, logits if whole else logits[counted], targets[counted])
        if index is not None:
            short = heights[number * bptt : (number + 1) * bptt].reshape(-1)
            _tally_keystrokes(tally, index, logits, targets, counted, short)
        if progress is not None:
            progress(tally.known + tally.unknown, len(stream))
    return tally.result(kss)


def _characters(messages: Sequence[bytes]) -> Ids:
    """Characters of each token of the stream; 0 for `<eos>`. Unknown words keep their own length."""
    lengths: list[int] = []
    for message in messages:
        lengths.extend(len(character_starts(word)) for word in tokenize(message))
        lengths.append(0)
    return np.array(lengths, np.int64)


def _tally_losses(tally: _Tally, logits: Floats, targets: Ids) -> None:
    highest = logits.max(axis=1)
    shifted = logits - highest[:, None]
    normaliser = highest + np.log(np.exp(shifted, out=shifted).sum(axis=1))
    losses = (normaliser - logits[np.arange(len(targets)), targets]).astype(np.float64)
    if not np.isfinite(losses).all():
        raise TrainingError("evaluation: the model's scores are not finite; its weights hold NaN or are far too large")
    known = targets != UNK
    tally.known_loss += float(losses[known].sum())
    tally.unknown_loss += float(losses[~known].sum())
    tally.known += int(known.sum())
    tally.unknown += int((~known).sum())
    tally.words += int((targets != EOS).sum())
    tally.hits += int(((logits.argmax(axis=1) == targets) & known & (targets != EOS)).sum())


def _tally_keystrokes(
    tally: _Tally, index: PrefixIndex, logits: Floats, targets: Ids, counted: Ids, lengths: Ids
) -> None:
    for place in counted:
        word, length = int(targets[place]), int(lengths[place])
        tally.characters += length
        if word == UNK:
            tally.typed += length
        elif word != EOS:
            tally.typed += index.keystrokes(word, logits[place])
