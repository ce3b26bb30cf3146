"""The output sample: the words that a phone's softmax runs over while it trains. FORMAT.md, "Output sample".

Own words are in it for certain, others by chance, with their logits raised by -log of it: over the draws, the mean of
the softmax's partition sum is that over the whole vocabulary.
"""

import secrets
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from phonograd.device_runtime.base.chances import Floats64, inclusion_chances
from phonograd.device_runtime.base.errors import TrainingError
from phonograd.device_runtime.base.random_words import random_words, stream_of, uniform_numbers
from phonograd.device_runtime.text.vocabulary import EOS, UNK, Ids
from phonograd.device_runtime.text.windows import IGNORED

STREAM = "output-sample"
SEED_BYTES = 8
_LN_2 = 0.6931471805599453
_SQRT_HALF = 0.7071067811865476
_LAST_TERM = 23  # of atanh's series, for numbers of at most 0.172: below float64's precision


@dataclass(frozen=True, eq=False)
class OutputSample:
    """The words of a sampled softmax: candidates int64 [C], rising ids, and float32 [C] to add to their logits."""

    candidates: Ids
    shifts: npt.NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.candidates)

    def places(self, ids: Ids) -> Ids:
        """Where ids of any shape stand among the candidates; -1, a target that is not counted, stays.

        Raises TrainingError for an id that is no candidate.
        """
        places = np.searchsorted(self.candidates, ids)
        found = self.candidates[np.minimum(places, len(self) - 1)]
        if len(odd := ids[(found != ids) & (ids != IGNORED)]):
            raise TrainingError(
                f"output sample: word {odd[0]} expected among its {len(self)} candidates, not found; draw the sample "
                "from the text that is trained on"
            )
        return np.where(ids == IGNORED, IGNORED, places)


@dataclass(frozen=True)
class SampleDraw:
    """How a sample is drawn: how many words beside the own ones, on average, and the seed, the phone's secret."""

    drawn: int
    seed: int


def draw_output_sample(stream: Ids, counts: Ids, draw: SampleDraw) -> OutputSample:
    """Candidates for training on a stream: its words, `<unk>` and `<eos>`, and others by chance.

    stream: ids [N] of the text that is trained on; counts: [V], how often general text has each word.
    """
    chances = np.ones(len(counts))
    own = np.zeros(len(counts), np.bool_)
    own[stream] = own[[UNK, EOS]] = True
    chances[~own] = np.minimum(inclusion_chances(np.sqrt(counts[~own] + 0.5), draw.drawn), 1)  # rounding may pass it
    drawn = own | (uniform_numbers(random_words(stream_of(draw.seed, STREAM), 0, len(counts))) < chances)
    candidates = np.flatnonzero(drawn)
    return OutputSample(candidates, (0.0 - logarithm(chances[candidates])).astype(np.float32))


def random_sample_seed() -> int:
    """A seed from the system's random source, of 64 bits."""
    return secrets.randbits(8 * SEED_BYTES)


def logarithm(numbers: Floats64) -> Floats64:
    """Natural logarithms of numbers above 0, by operations that IEEE 754 defines to the bit; a library's differ."""
    mantissas, exponents = np.frexp(numbers)
    low = mantissas < _SQRT_HALF
    mantissas = np.where(low, 2 * mantissas, mantissas)
    exponents = exponents - low
    t = (mantissas - 1) / (mantissas + 1)
    squares = t * t
    series = np.full(t.shape, 1 / _LAST_TERM)
    for term in range(_LAST_TERM - 2, 0, -2):
        series = series * squares + 1 / term
    logarithms: Floats64 = 2 * t * series + exponents * _LN_2
    return logarithms
