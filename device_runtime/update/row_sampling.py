"""Rows drawn by their norm: the largest for certain, the others by chance and weighted up, so that the mean is right.

Chances are in proportion to the norms (`base/chances.py`), and a row that is drawn counts 1 / chance times. They are
drawn systematically (Madow, 1949): one random number, and just as many rows as the chances sum to.
"""

import numpy as np

from phonograd.device_runtime.base.chances import inclusion_chances
from phonograd.device_runtime.formats.tensor_file import Array

ROWS_AT_A_TIME = 256


def row_norms(rows: Array) -> Array:
    """Euclidean norms, float64, of float32 rows; squares are summed by halves of the next power of two."""
    count, width = rows.shape
    padded = 1 << max(0, width - 1).bit_length()
    norms = np.empty(count)
    for first in range(0, count, ROWS_AT_A_TIME):
        some = rows[first : first + ROWS_AT_A_TIME]
        squares = np.zeros((len(some), padded))
        np.square(some, out=squares[:, :width], dtype=np.float64)
        norms[first : first + len(some)] = np.sqrt(sum_by_halves(squares))
    return norms


def sum_by_halves(values: Array) -> Array:
    """Sum of each row of a power of two, its halves added to each other until one is left; destroys `values`."""
    half = values.shape[1] // 2
    while half:
        values[:, :half] += values[:, half : 2 * half]
        half //= 2
    return values[:, 0].copy()


def draw_rows(norms: Array, most: int, uniform: float) -> tuple[Array, Array]:
    """Numbers of the rows drawn, rising, and their probabilities; all that are not 0 if they are `most` or fewer.

    `uniform` is a random number in [0, 1). All sums run in the order of the rows, or of falling norms.
    """
    moved = np.flatnonzero(norms)
    if len(moved) <= most:
        return moved, np.ones(len(moved))
    chances = np.zeros(len(norms))
    chances[moved] = inclusion_chances(norms[moved], most)
    steps = np.floor(np.cumsum(chances) + uniform)
    drawn = np.flatnonzero(np.diff(steps, prepend=0.0))
    return drawn, chances[drawn]
