"""Perplexity, top-1 accuracy and keystroke savings of a model on a text."""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from phonograd.device_runtime.engine.c_abi import callback
from phonograd.device_runtime.engine.header import new
from phonograd.device_runtime.engine.native import NativeBackend
from phonograd.device_runtime.engine.predictor import Predictor
from phonograd.device_runtime.formats.tensor_file import Floats
from phonograd.device_runtime.text.tokenizer import text_of
from phonograd.device_runtime.text.vocabulary import EOS, Ids, Vocabulary


class Scorer(Protocol):
    """The part of a Backend that evaluation needs."""

    def reset(self) -> None:
        """See Backend.reset."""

    def logits(self, tokens: Ids) -> Floats:
        """See Backend.logits."""


class PredictorScorer:
    """A Scorer of what a keyboard's predictor computes, one word at a time: for windows of one column."""

    def __init__(self, predictor: Predictor, vocabulary: Vocabulary):
        self._predictor = predictor
        self._words = [word.decode("utf-8", "replace") for word in vocabulary.words]
        self.close = predictor.close

    def reset(self) -> None:
        """See Scorer."""
        self._predictor.reset()

    def logits(self, tokens: Ids) -> Floats:
        """See Scorer. `<eos>` ends a message; at the start of a text, where one is read already, it does nothing."""
        scores = np.empty((tokens.size, len(self._words)), np.float32)
        for row, token in zip(scores, tokens.ravel(), strict=True):
            self._predictor.feed("\n" if token == EOS else self._words[token])
            row[:] = self._predictor.logits()
        return scores


@dataclass(frozen=True)
class Evaluation:
    """The scores of a model on a text, each with its standard error, clustered by message. FORMAT.md has the rules.

    words: tokens but `<eos>`
    characters: characters of words, 0 without kss
    perplexity: without unknown words, as in paper P; counts `<eos>`
    perplexity_with_unknown: over all tokens, `<unk>` by its own probability
    top1: the share of words that are a keyboard's first suggestion; unknown words are misses
    top1_with_unknown: paper M's AccuracyTop1: unknown words are misses, but `<unk>` may be the best
    kss: P's eq. 5, or None if not requested
    kss_without_marks: the same of a keyboard that suggests words alone
    """

    tokens: int
    unknown_tokens: int
    words: int
    characters: int
    perplexity: float
    perplexity_error: float
    perplexity_with_unknown: float
    perplexity_with_unknown_error: float
    top1: float
    top1_error: float
    top1_with_unknown: float
    top1_with_unknown_error: float
    kss: float | None
    kss_error: float | None
    kss_without_marks: float | None = None
    kss_without_marks_error: float | None = None


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

    The library does all of it, of a native engine without a copy of the scores. `progress` is called with (tokens done,
    tokens in total). Raises TrainingError if the model's scores are not finite.
    """
    scorer.reset()
    text, size = b"\n".join(messages), len(vocabulary)

    def scores(_: object, tokens: int, T: int, B: int, out: int) -> None:
        ids = np.ctypeslib.as_array(ctypes.cast(tokens, ctypes.POINTER(ctypes.c_int64)), (T, B))
        buffer = np.ctypeslib.as_array(ctypes.cast(out, ctypes.POINTER(ctypes.c_float)), (T * B, size))
        buffer[:] = scorer.logits(ids.copy())

    def pass_on(_: object, done: int, total: int) -> None:
        if progress is not None:
            progress(done, total)

    struct, native = "pg_evaluation_options", scorer.handle if isinstance(scorer, NativeBackend) else None
    with callback(struct, "progress", pass_on) as hear, callback(struct, "scores", scores) as score:
        given = {"text": text_of(text), "kss": kss, "T": bptt, "B": minibatch, "progress": hear}
        options = new(struct, **given, engine=native, scores=None if native else score)
        buffer = vocabulary.tokenizer.call("pg_tokenizer_evaluate", options, result=lambda figures: figures)
    figures = {name: getattr(buffer, name) for name in Evaluation.__dataclass_fields__}
    return Evaluation(**figures | ({} if kss else dict.fromkeys(name for name in figures if name.startswith("kss"))))


def keystroke_savings(
    predictor: Predictor,
    vocabulary: Vocabulary,
    messages: Sequence[bytes],
    learn: bool,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[float, float]:
    """Return paper P's eq. 5 over messages as a user writes them, one after the other, with marks and without.

    Unlike `evaluate`'s, it counts the predictor's own suggestions, so words that only the user has count too.
    learn: learn each piece between two spaces, into the personal words in use
    progress: called with (messages done, messages in all)
    """
    typed, characters = [0, 0], 0
    predictor.reset()
    for done, message in enumerate(messages, 1):
        for piece in message.split():
            words = [token.decode("utf-8", "replace") for token in vocabulary.tokenize(piece)]
            place = predictor.state() if learn and len(words) > 1 else None
            for number, word in enumerate(words, 1):
                characters += len(word)
                for marks in (False, True):
                    typed[marks] += predictor.keystrokes(word, marks)
                if number < len(words) or not learn:  # the last one follows with the piece
                    predictor.feed(word)
            if learn:
                if place is not None:
                    predictor.restore(place)
                predictor.learn(piece.decode("utf-8", "replace"))
        (predictor.learn if learn else predictor.feed)("\n")
        if progress is not None:
            progress(done, len(messages))
    without, with_marks = ((characters - count) / max(1, characters) for count in typed)
    return with_marks, without
