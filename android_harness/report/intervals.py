"""95 % confidence intervals for a ratio of times.

The epoch is the observation: steps of an epoch share clocks, heat and load, so the sixty steps of three epochs are
three observations, not sixty. Epochs vary by factors, hence the logarithms; the median of a lognormal is the
exponential of the mean logarithm, so the interval is for the ratio of medians. Welch's t allows both sides to have
different variances. Its coverage is right with three epochs, where a bootstrap of three values is far too narrow.

With fewer than three epochs on a side, the variance of epochs is unknown, and the interval is from steps only. Steps
with the same number do the same work, so they are compared in pairs. Neighbouring steps are correlated, so the pairs
are the means of four runs of steps (batch means), under a paired t. The interval holds for *these* epochs only.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
MIN_EPOCHS = 3
_BATCHES = 4
Interval = tuple[float, float]


def from_epochs(old: Sequence[float], new: Sequence[float]) -> Interval | None:
    """Interval of new/old from the seconds of each epoch; None with fewer than MIN_EPOCHS on a side."""
    if min(len(old), len(new)) < MIN_EPOCHS:
        return None
    logs = [np.log(np.asarray(values, np.float64)) for values in (new, old)]
    centre = float(logs[0].mean() - logs[1].mean())
    squares = [float(values.var(ddof=1)) / values.size for values in logs]
    total = sum(squares)
    if total == 0:
        return math.exp(centre), math.exp(centre)
    # Welch-Satterthwaite.
    freedom = total**2 / sum(square**2 / (values.size - 1) for square, values in zip(squares, logs, strict=True))
    half = student_t(freedom) * math.sqrt(total)
    return math.exp(centre - half), math.exp(centre + half)


def from_steps(old: Sequence[Sequence[float]], new: Sequence[Sequence[float]]) -> Interval | None:
    """Interval of new/old from the seconds of each step of each epoch.

    None if epochs differ in their number of steps, or have too few of them to tell.
    """
    lengths = {len(steps) for steps in (*old, *new)}
    if len(lengths) != 1 or not old or not new or min(lengths) < 2 * _BATCHES:
        return None
    ratios = np.log(_batches(new)) - np.log(_batches(old))
    centre, half = float(ratios.mean()), student_t(_BATCHES - 1) * float(ratios.std(ddof=1)) / math.sqrt(_BATCHES)
    return math.exp(centre - half), math.exp(centre + half)


def _batches(epochs: Sequence[Sequence[float]]) -> NDArray[np.float64]:
    steps = np.asarray(epochs, np.float64).mean(axis=0)
    return np.array([batch.sum() for batch in np.array_split(steps, _BATCHES)])


def student_t(freedom: float, confidence: float = CONFIDENCE) -> float:
    """t such that Student's t with `freedom` degrees (at least 1) lies within ±t with probability `confidence`.

    With t = sqrt(freedom)·tan(a) the density in a is cos(a)^(freedom - 1), summed here over a grid.
    """
    edges = np.linspace(0, math.pi / 2, 4_001)
    middles = (edges[1:] + edges[:-1]) / 2
    inside = np.cumsum(np.cos(middles) ** (freedom - 1))
    angle = float(np.interp(confidence * inside[-1], inside, edges[1:]))
    return math.sqrt(freedom) * math.tan(angle)
