"""The epsilon that right guesses of coins refute: Steinke, Nasr and Jagielski 2023, Theorem 5.2.

m coins of 1/2 say who takes part. Of an (epsilon, delta)-private model, someone who guesses at most r of the coins has
v or more right with a chance of at most

    P[B >= v] + 2 m delta max over i >= 1 of P[v > B >= v - i] / i,    B ~ binomial(r, e^epsilon / (1 + e^epsilon)).

The theorem is for numbers m and r that were fixed before the coins fell.
"""

import math

import numpy as np
import numpy.typing as npt

_NEAR = 1e-9  # of the bound, in epsilon


def chance_of_right(coins: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """The largest chance of so many right guesses or more, of an (epsilon, delta)-private model."""
    chances = _binomial(guesses, epsilon)
    chance = float(chances[right:].sum())
    if right:
        below = np.cumsum(chances[:right][::-1]) / np.arange(1, right + 1)  # i above `right` adds nothing to the sum
        chance += 2 * coins * delta * float(below.max())
    return min(1.0, chance)


def epsilon_at_least(coins: int, guesses: int, right: int, delta: float, confidence: float) -> float:
    """A lower bound of epsilon at `delta`, 0 without one: too large with a chance of at most 1 - confidence.

    Raises ValueError unless right <= guesses <= coins, delta in [0, 1), confidence in (0, 1).
    """
    if not 0 <= right <= guesses <= coins:
        raise ValueError(f"right guesses <= guesses <= coins expected, found {right}, {guesses} and {coins}")
    if not (0 <= delta < 1 and 0 < confidence < 1):
        raise ValueError(f"delta in [0, 1) and confidence in (0, 1) expected, found {delta} and {confidence}")

    def is_refuted(epsilon: float) -> bool:
        return chance_of_right(coins, guesses, right, epsilon, delta) <= 1 - confidence

    if not is_refuted(0):
        return 0.0
    low, high = 0.0, 1.0
    while is_refuted(high):
        low, high = high, 2 * high
    while high - low > _NEAR:
        middle = (low + high) / 2
        low, high = (middle, high) if is_refuted(middle) else (low, middle)
    return low


def _binomial(guesses: int, epsilon: float) -> npt.NDArray[np.float64]:
    """The chances of 0 to `guesses` right ones, each right with chance e^epsilon / (1 + e^epsilon); from logarithms, so
    that none overflows.
    """
    factorials = np.array([math.lgamma(number + 1) for number in range(guesses + 1)])
    wrong = np.arange(guesses, -1, -1)
    logs = factorials[-1] - factorials - factorials[::-1] - epsilon * wrong - guesses * math.log1p(math.exp(-epsilon))
    chances: npt.NDArray[np.float64] = np.exp(logs)
    return chances
