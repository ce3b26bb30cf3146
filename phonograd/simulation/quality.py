"""How good a model is on several texts: one figure of all of them, its standard error, and how texts differ."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from phonograd.device_runtime.base.documents import Record
from phonograd.device_runtime.text.evaluation import Evaluation

Figure = Literal["perplexity", "perplexity_with_unknown", "top1", "top1_with_unknown", "kss"]

# What a figure is a mean over, and so the weight of a text in the pooled one.
_WEIGHTS: dict[Figure, Callable[[Evaluation], int]] = {
    "perplexity": lambda text: text.tokens - text.unknown_tokens,
    "perplexity_with_unknown": lambda text: text.tokens,
    "top1": lambda text: text.words,
    "top1_with_unknown": lambda text: text.words,
    "kss": lambda text: text.characters,
}


class Quality(Record, frozen=True):
    """A model's evaluations: on general text (null without), and on the text of each user who never trained."""

    general: Evaluation | None
    users: tuple[Evaluation, ...]


@dataclass(frozen=True)
class Spread:
    """A figure over texts. pooled: that of one test made of all texts; error: its standard error, over texts, or of one
    text over its messages; mean: of the texts' own figures, geometric for perplexities; p10, p90: percentiles.
    """

    pooled: float
    error: float
    mean: float
    p10: float
    p90: float


def spread(texts: Sequence[Evaluation], figure: Figure) -> Spread | None:
    """The spread of a figure; None without texts, or if it was not measured."""
    found = [getattr(text, figure) for text in texts]
    if not found or None in found:
        return None
    logarithmic = figure.startswith("perplexity")
    values = np.log(found) if logarithmic else np.array(found)
    weights = np.array([_WEIGHTS[figure](text) for text in texts], float)
    total = max(1.0, float(weights.sum()))
    pooled = math.fsum(weights * values) / total
    m = len(texts)
    squares = math.fsum((weights * (values - pooled)) ** 2)
    error = math.sqrt(m / max(1, m - 1) * squares) / total
    mean = math.fsum(values) / m
    if logarithmic:
        pooled, mean = math.exp(pooled), math.exp(mean)
        error *= pooled
    if m == 1:
        error = getattr(texts[0], f"{figure}_error")
    p10, p90 = (float(value) for value in np.percentile(found, [10, 90]))
    return Spread(pooled, error, mean, p10, p90)
