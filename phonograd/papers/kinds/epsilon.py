"""Epsilon of private rounds (paper M), and paper P's empirical epsilon from the tails that it published."""

import math

import numpy as np
from msgspec import field

from phonograd.device_runtime.base.documents import Amount, Positive, Record
from phonograd.papers.arms import Arm
from phonograd.papers.run import Context, Outcome
from phonograd.server_agg.aggregation.privacy.accountant import PrivateRounds, privacy_spent
from phonograd.simulation.empirical.tail import DELTAS, PAPER_TABLE_7, worst_epsilons

MOMENTS = 32  # the most that Abadi et al. compute


class Private(Record, frozen=True):
    """Rounds of dp-fedavg: enrolled phones, phones expected in a round, the noise multiplier, rounds, and delta.
    clip_norm: of which the noise of the mean, σ, is a multiple; epsilon doesn't depend on it.
    """

    population: Positive
    per_round: Positive
    noise: Amount
    rounds: Positive
    delta: Amount = 1e-9
    clip_norm: Amount | None = None


class Settings(Record, frozen=True):
    """rows: by name; none: paper P's Table 8 from its Table 7."""

    rows: dict[str, Private] = field(default_factory=dict)


def run(settings: Settings, context: Context) -> Outcome:
    """Account for each row; nothing is drawn at random."""
    del context
    if not settings.rows:
        worst = zip(DELTAS, worst_epsilons(PAPER_TABLE_7), strict=True)
        rows = {f"delta {delta:g}": {"epsilon": epsilon} for delta, epsilon in worst}
        return Outcome(rows, {"pairs": len(PAPER_TABLE_7)})
    return Outcome({row: _epsilons(one) for row, one in settings.rows.items()})


def arms(settings: Settings) -> dict[str, Arm]:
    """What the rows' names say."""
    found = {}
    for row, one in settings.rows.items():
        quantities = {"z": one.noise, "round": one.rounds}
        if one.clip_norm:
            quantities |= {"S": one.clip_norm, "σ": one.noise * one.clip_norm / one.per_round}
        found[row] = Arm(quantities)
    return found


def _epsilons(one: Private) -> dict[str, float]:
    rounds = PrivateRounds(one.per_round / one.population, one.noise, one.rounds)
    spent = privacy_spent([rounds], one.delta)
    return {
        "epsilon": spent.epsilon,
        "epsilon by RDP": spent.epsilon_rdp,
        "epsilon by the moments accountant": moments_epsilon(rounds, one.delta),
    }


def moments_epsilon(rounds: PrivateRounds, delta: float) -> float:
    """Epsilon by the accountant that paper M used (Abadi et al. 2016, theorem 2), of integer moments."""
    q, z = rounds.sampling, rounds.noise_multiplier
    bounds = []
    for moment in range(1, MOMENTS + 1):
        order = moment + 1
        terms = [
            math.log(math.comb(order, k)) + k * math.log(q) + (order - k) * math.log1p(-q) + k * (k - 1) / (2 * z * z)
            for k in range(order + 1)
        ]
        log_moment = float(np.logaddexp.reduce(terms))
        bounds.append((rounds.count * log_moment - math.log(delta)) / moment)
    return min(bounds)
