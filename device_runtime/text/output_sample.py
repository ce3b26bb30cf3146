"""The output sample: the words that a phone's softmax runs over while it trains. FORMAT.md, "Output sample".

Own words are in it for certain, others by chance, with their logits raised by -log of it: over the draws, the mean of
the softmax's partition sum is that over the whole vocabulary.
"""

import ctypes
from ctypes import c_float
from dataclasses import dataclass

import numpy as np

from phonograd.device_runtime.engine.backend import OutputSample
from phonograd.device_runtime.text.tokenizer import ids_at, plain_tokenizer
from phonograd.device_runtime.text.vocabulary import Ids


@dataclass(frozen=True)
class SampleDraw:
    """Settings of a draw: how many words beside the phone's own, on average, and the seed, the phone's secret."""

    drawn: int
    seed: int


def draw_output_sample(stream: Ids, counts: Ids, draw: SampleDraw) -> OutputSample:
    """Candidates for training on a stream: its words, `<unk>` and `<eos>`, and others by chance.

    stream: ids [N] of the text that is trained on; counts: [V], how often general text has each word.
    """
    ids, seen = (np.ascontiguousarray(values, np.int64) for values in (stream, counts))

    def copy_sample(candidates: int, shifts: int, count: int) -> OutputSample:
        added = np.ctypeslib.as_array(ctypes.cast(shifts, ctypes.POINTER(c_float)), (count,)).copy()
        return OutputSample(ids_at(candidates, count), added)

    given = ids, len(ids), seen, len(seen), draw.drawn, draw.seed
    return plain_tokenizer().call("pg_tokenizer_sample", *given, result=copy_sample)
