"""Chances in proportion to a size, with a sum given: what top-rows draws rows by, and the output sample words.

With p_i = min(1, c·size_i), Σ p_i = n, and what is drawn counting 1 / p_i times, the estimate of a sum is unbiased;
where its terms are as the sizes, no other p has less variance (Horvitz and Thompson's estimator).
"""

import numpy as np
import numpy.typing as npt

Floats64 = npt.NDArray[np.float64]


def inclusion_chances(sizes: Floats64, count: int) -> Floats64:
    """Chances [n] whose sum is `count`: 1 of the largest sizes, of the others in proportion; all 1 if n <= count.

    sizes: [n], above 0. Sums run in the order of falling sizes, equal ones by their place.
    """
    chances = np.ones(len(sizes))
    if len(sizes) <= count:
        return chances
    order = np.argsort(-sizes, kind="stable")
    falling = sizes[order]
    rest = np.cumsum(falling[::-1])[::-1]  # of this size and all smaller ones
    left = count - np.arange(count)
    by_chance = np.flatnonzero(falling[:count] * left < rest[:count])
    sure = int(by_chance[0]) if len(by_chance) else count
    factor = (count - sure) / rest[sure] if sure < count else 0.0
    chances[order[sure:]] = falling[sure:] * factor
    return chances
