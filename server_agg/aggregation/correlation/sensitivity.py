"""How far one phone can move C X in L2, X the sums of all rounds, if each of its updates moves a sum by 1 at most."""

import numpy as np

from phonograd.device_runtime.formats.tensor_file import Array

# Coefficients are computed in float64: a smaller rise does not count.
_ROUNDING = 1e-12


def sensitivity(coefficients: Array, separation: int, participations: int) -> float:
    """Exact for C with this first column, non-negative and non-increasing (arXiv 2405.13763, Theorem 2).

    separation: rounds from one participation of a phone to its next, at least; 1: it may take part in each round.
    participations: of a phone in all rounds, at most. The worst phone takes part in the first round, and then as often
    as it may, exactly `separation` rounds apart. Raises ValueError for other coefficients, and for numbers below 1.
    """
    rises = np.diff(coefficients, append=0.0)
    if not (np.all(coefficients >= 0) and np.all(rises <= _ROUNDING)):
        raise ValueError("coefficients: non-negative and non-increasing numbers expected, found others")
    if separation < 1 or participations < 1:
        raise ValueError(f"separation {separation}, participations {participations}: 1 or more expected of both")
    rounds = len(coefficients)
    padded = np.concatenate((coefficients, np.zeros(-rounds % separation)))
    moved = padded.reshape(-1, separation).cumsum(axis=0).ravel()  # by a phone that takes part to the end
    first_left = separation * participations  # the round of its first participation that is one too many
    if first_left < len(moved):
        moved[first_left:] -= moved[:-first_left].copy()
    return float(np.linalg.norm(moved[:rounds]))
