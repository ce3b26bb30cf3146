"""The noise in the running sum of all rounds at equal epsilon: BLT beside independent noise and tree aggregation.

All of them are one Gaussian mechanism for the whole run, without amplification by sampling. Errors are root mean
squares over the rounds for each element of the sum, for a phone that moves it by 1 and a noise multiplier of 1.
"""

import math
from dataclasses import dataclass

import numpy as np

from phonograd.server_agg.aggregation.correlation.blt import Blt
from phonograd.server_agg.aggregation.correlation.sensitivity import sensitivity


@dataclass(frozen=True)
class RunningSumErrors:
    """blt: of dp-ftrl. independent: new noise in each round, as dp-fedavg adds it. tree: Dwork et al. 2010, a noise for
    each node of a binary tree over the rounds; refined_tree: with Honaker's estimator, as DP-FTRL had at first (Kairouz
    et al. 2021). Both trees are taken at the sensitivity to phones exactly `separation` rounds apart, which is at most
    their true one.
    """

    blt: float
    independent: float
    tree: float
    refined_tree: float


def running_sum_errors(blt: Blt, rounds: int, separation: int, participations: int) -> RunningSumErrors:
    """The four errors over a run; separation, participations: as of `sensitivity`."""
    most = min(participations, -(-rounds // separation))
    of_blt = sensitivity(blt.coefficients(rounds), separation, participations)
    of_tree = _tree_sensitivity(rounds, separation, most)
    ended = np.arange(1, rounds + 1)
    levels = np.arange(rounds.bit_length())
    nodes = (ended[:, None] >> levels) & 1  # of the prefix of each round: a node for each bit
    refined = 1 / (2 * (1 - 0.5 ** (levels + 1.0)))  # the variance of a node by Honaker's estimator from below
    return RunningSumErrors(
        blt=of_blt * _rms(np.square(blt.inverse(rounds).cumsum()).cumsum()),
        independent=math.sqrt(most) * _rms(ended),
        tree=of_tree * _rms(nodes.sum(axis=1)),
        refined_tree=of_tree * _rms(nodes @ refined),
    )


def _rms(variances: np.ndarray) -> float:
    return math.sqrt(float(np.mean(variances)))


def _tree_sensitivity(rounds: int, separation: int, participations: int) -> float:
    """Sensitivity of the nodes that are complete within the run, which are all that a prefix needs."""
    largest = 0.0
    for first in range(rounds - (participations - 1) * separation):
        taken = first + separation * np.arange(participations)
        squares = 0.0
        for level in range(rounds.bit_length()):
            counts = np.bincount(taken >> level)[: rounds >> level]
            squares += float(np.square(counts).sum())
        largest = max(largest, squares)
    return math.sqrt(largest)
