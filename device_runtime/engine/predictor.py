"""A keyboard's predictor: the native engine's pg_predictor."""

import ctypes
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from phonograd.device_runtime.base.errors import UsageError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.engine.backend import BackendOptions
from phonograd.device_runtime.engine.c_abi import Handle, encode_text, load_library, options_of
from phonograd.device_runtime.engine.header import new, structs
from phonograd.device_runtime.engine.personal import PersonalWords
from phonograd.device_runtime.formats.manifest import Artifacts
from phonograd.device_runtime.formats.tensor_file import Floats, TensorFile, WrittenFile

SUGGESTIONS = 3  # that a keyboard shows
Shift = Literal["by-place", "none", "first", "all"]


@dataclass(frozen=True)
class SuggestOptions:
    """What a keyboard wants suggested.

    shift: what its shift key asks: a capital at a sentence's start, nothing, a first capital, capitals alone. Capitals
    that were typed stay, whatever it asks. emoji: suggest emoji too. slips: also words whose beginning is one slip away
    from what was typed: a neighbouring key, two letters swapped, one missing, one doubled. slip_cost: nats that a slip
    takes from the logarithm of the probability; 0: the library's 6. neighbours: keys side by side, in pairs
    ("qw we qa"); None: QWERTY's.
    """

    shift: Shift = "by-place"
    emoji: bool = False
    slips: bool = False
    slip_cost: float = 0
    neighbours: str | None = None


@dataclass(frozen=True)
class Suggestion:
    """A word that may come next, as it is written there, and its probability among all words."""

    word: str
    probability: float


class Predictor(Handle):
    """Reads a text piece by piece and suggests the next word at any point. Made by `open_predictor`. Not thread-safe.

    It keeps the recurrent state, so that each word costs one step of the network.
    """

    def __init__(self, artifacts: Artifacts, weights: Path | None, options: BackendOptions):
        self._vocabulary = artifacts.manifest.model.vocabulary
        super().__init__(load_library(), "predictor", artifacts.folder, weights, options_of(options))

    def reset(self) -> None:
        """Return to the start of a text."""
        self._library.call("pg_predictor_reset", self.handle)

    def feed(self, text: str) -> None:
        """Continue the text: whole words, in one call or in several; a line feed ends a message."""
        self._library.call("pg_predictor_feed", self.handle, encode_text(text))

    def use(self, personal: PersonalWords | None) -> None:
        """Mix a user's own words into the suggestions; None: no longer."""
        self._library.call("pg_predictor_personal", self.handle, None if personal is None else personal.handle)

    def learn(self, text: str) -> None:
        """Continue the text, and learn it into the personal words in use: whole words that the user wrote.

        Pieces with a digit or an @ are learned in the third message that has them. Raises UsageError without personal
        words, and what `suggest` raises.
        """
        self._library.call("pg_predictor_learn", self.handle, encode_text(text))

    def block(self, words: Iterable[str]) -> None:
        """Never suggest these words, in any case, in place of those of the last call.

        Raises UsageError for what is no single word.
        """
        self._library.call("pg_predictor_block", self.handle, encode_text("\n".join(words)))

    def suggest(
        self, prefix: str = "", count: int = SUGGESTIONS, options: SuggestOptions | None = None
    ) -> list[Suggestion]:
        """The `count` most probable next words that begin with `prefix`, best first; fewer if there are fewer.

        The first call after `feed` computes the scores of all words; later ones only look them up. Raises
        TrainingError if the model's scores are not finite, WeightsError if the weights were changed meanwhile.
        """
        capacity, chosen = min(count, self._vocabulary), options or SuggestOptions()
        if chosen.shift not in get_args(Shift):
            raise UsageError(f"shift: {', '.join(get_args(Shift))} expected, found {chosen.shift!r}")
        suggestions = (structs()["pg_suggestion"] * max(1, capacity))()
        wanted = new(
            "pg_suggest_options",
            shift=get_args(Shift).index(chosen.shift),
            emoji=chosen.emoji,
            slips=chosen.slips,
            slip_cost=chosen.slip_cost,
            neighbours=None if chosen.neighbours is None else encode_text(chosen.neighbours),
        )
        given = encode_text(prefix), wanted, capacity, suggestions
        (count,) = self._library.call("pg_predictor_suggest", self.handle, *given)
        return [Suggestion(one.word.decode("utf-8", "replace"), one.probability) for one in suggestions[:count]]

    def keystrokes(self, word: str, marks: bool = True) -> int:
        """Characters of a word typed before it is suggested; all if it never is. Raises what `suggest` raises.

        marks: marks and emoji are suggested too, as papers count.
        """
        (typed,) = self._library.call("pg_predictor_keystrokes", self.handle, encode_text(word), marks)
        return int(typed)

    def scores(self, words: Sequence[str]) -> list[float]:
        """The logarithm of the probability that each of at most 64 words is next, for a keyboard's own decoder.

        A candidate of several tokens has its first one's; a word that neither the model nor the user knows -inf. Raises
        UsageError for more words, and what `suggest` raises.
        """
        pointers = (ctypes.c_char_p * len(words))(*map(encode_text, words))
        scores = np.empty(len(words))
        self._library.call("pg_predictor_scores", self.handle, pointers, len(words), scores)
        return [float(score) for score in scores]

    def logits(self) -> Floats:
        """Logits [V] float32 of the model's next word; their softmax is its probabilities. Raises as `suggest`."""
        logits = np.empty(self._vocabulary, np.float32)
        self._library.call("pg_predictor_logits", self.handle, logits)
        return logits

    def state(self) -> bytes:
        """Return the state after the text, for `restore`. It reveals much of the text: keep it on the phone."""
        return ctypes.string_at(*self._library.call("pg_predictor_state", self.handle))

    def restore(self, state: bytes) -> None:
        """Continue from a state of a predictor of the same model. Raises StateError for anything else."""
        self._library.call("pg_predictor_restore", self.handle, state, len(state))


def write_prediction_weights(weights: Path, out: Path) -> WrittenFile:
    """Write the prediction weights of a model's tensor file, atomically. FORMAT.md, "Prediction weights".

    Raises WeightsError for weights that are not finite or change meanwhile, UsageError for an output that is the input,
    StorageError.
    """
    load_library().call("pg_quantize", None, weights, out)
    return WrittenFile(out.stat().st_size, sha256_of_file(out))


def write_merged_weights(weights: Path, out: Path) -> WrittenFile:
    """Write a plain model of a tensor file with adapters, atomically. FORMAT.md, "Adapters".

    Raises WeightsError for a model without adapters, UsageError for an output that is the input, StorageError.
    """
    load_library().call("pg_merge", weights, out)
    return WrittenFile(out.stat().st_size, sha256_of_file(out))


def is_prediction_file(path: Path) -> bool:
    """Return whether a tensor file says that it holds prediction weights. Raises WeightsError for other files."""
    with TensorFile(path) as file:
        return file.metadata.get("format") == "phonograd-prediction"
