"""Buffered linear Toeplitz matrices (BLT; arXiv 2404.16706; McMahan, Xu, Zhang, arXiv 2408.08868).

The noise of round t is row t of C^-1 Z, where Z has a row of independent normal numbers for each round. C is lower
triangular, and the same along each diagonal: 1, then the sum of scale x decay^(j - 1) on the j-th below it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phonograd.device_runtime.formats.tensor_file import Array


@dataclass(frozen=True)
class Blt:
    """C by its buffers: theta, how much of a buffer is left after a round, and omega, what it adds.

    Raises ValueError unless there are as many decays, in (0, 1), as scales, above 0 and 1 at most together: then C is
    non-negative and falls along its columns.
    """

    decays: tuple[float, ...]
    scales: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.decays) != len(self.scales) or not self.decays:
            raise ValueError(f"{len(self.decays)} decays and {len(self.scales)} scales, expected as many of both")
        if not all(0 < decay < 1 for decay in self.decays):
            raise ValueError(f"decays are {self.decays}, expected numbers between 0 and 1")
        if not all(scale > 0 for scale in self.scales) or sum(self.scales) > 1:
            raise ValueError(f"scales are {self.scales}, expected numbers above 0, 1 at most together")

    def coefficients(self, rounds: int) -> Array:
        """The first column of C, float64 [rounds]."""
        powers = np.power(np.array(self.decays), np.arange(rounds - 1)[:, None])
        return np.concatenate(([1.0], powers @ np.array(self.scales)))

    def inverse(self, rounds: int) -> Array:
        """The first column of C^-1, float64 [rounds]: the rows that a single 1 in the first round leads to."""
        buffers = np.zeros((1, len(self.decays)))
        return np.concatenate([self.row(np.array([float(t == 0)]), buffers) for t in range(rounds)])

    def row(self, normals: Array, buffers: Array) -> Array:
        """Round t's row of C^-1 Z, and the buffers after it, in place (arXiv 2408.08868, Algorithm 3).

        normals: row t of Z, float64 [elements], which becomes the result. buffers: float64 [elements, buffers]; zeros
        before the first round. Elementwise, so that it does not depend on the tiles.
        """
        for place, scale in enumerate(self.scales):
            normals -= scale * buffers[:, place]
        for place, decay in enumerate(self.decays):
            buffers[:, place] *= decay
            buffers[:, place] += normals
        return normals


def from_decays(decays: Sequence[float], inverse_decays: Sequence[float]) -> Blt:
    """The BLT whose C decays by `decays` and whose C^-1 decays by `inverse_decays` (arXiv 2404.16706, Lemma 5.2).

    Each inverse decay lies between two decays, the last one below all: then all scales are positive.
    """
    theta, inverse = np.array(decays), np.array(inverse_decays)
    return Blt(tuple(decays), tuple(map(float, scales_of(theta, inverse))))


def scales_of(theta: Array, inverse: Array) -> Array:
    """omega of C, from the decays of C and of C^-1; of C^-1, up to the sign, with both exchanged."""
    others = theta[:, None] - theta
    np.fill_diagonal(others, 1.0)
    scales: Array = np.prod(theta[:, None] - inverse, axis=1) / np.prod(others, axis=1)
    return scales
