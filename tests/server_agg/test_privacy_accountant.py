"""Epsilon against dp-accounting's own figures, budgets, and Poisson sampling."""

import math
import random

import numpy as np
import pytest
from msgspec.structs import replace

from phonograd.server_agg.aggregation.privacy.accountant import (
    LEAST_PLD_NOISE,
    PrivateRounds,
    privacy_spent,
)
from phonograd.server_agg.aggregation.privacy.budget import over_budget
from phonograd.server_agg.aggregation.privacy.mechanism import poisson_sample
from phonograd.server_agg.aggregation.settings import StrategySettings

# Paper M, table 2's large population: N = 763,430 phones, 5,000 expected a round, z = 1, delta = 1e-9.
PAPER_ROUNDS = PrivateRounds(sampling=5000 / 763_430, noise_multiplier=1.0, count=5000)
PAPER_DELTA = 1e-9
PAPER_EPSILON = 4.634  # what the paper's moments accountant gives for them


def test_the_papers_setting_costs_what_dp_accounting_says() -> None:
    import dp_accounting
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    event = dp_accounting.SelfComposedDpEvent(
        dp_accounting.PoissonSampledDpEvent(5000 / 763_430, dp_accounting.GaussianDpEvent(1.0)), 5000
    )
    found = privacy_spent([PAPER_ROUNDS], PAPER_DELTA)
    assert found.epsilon == PLDAccountant().compose(event).get_epsilon(PAPER_DELTA)
    assert found.epsilon_rdp == RdpAccountant().compose(event).get_epsilon(PAPER_DELTA)
    assert found.epsilon == pytest.approx(3.899, abs=5e-3)
    assert found.epsilon_rdp == pytest.approx(4.183, abs=5e-3)
    assert found.epsilon < found.epsilon_rdp < PAPER_EPSILON, "tighter accounts of the same mechanism"
    assert (found.rounds, found.delta) == (5000, PAPER_DELTA)


def test_rounds_add_up_however_they_are_listed() -> None:
    one = PrivateRounds(0.01, 4.0)
    together = privacy_spent([PrivateRounds(0.01, 4.0, 6)], 1e-6)
    assert privacy_spent([one] * 6, 1e-6) == together
    assert privacy_spent([one, PrivateRounds(0.01, 4.0, 5)], 1e-6) == together
    mixed = [PrivateRounds(0.01, 4.0, 3), PrivateRounds(0.02, 5.0, 2)]
    assert privacy_spent(mixed, 1e-6) == privacy_spent(mixed[::-1], 1e-6)


def test_a_round_in_which_all_take_part_is_the_plain_gaussian_mechanism() -> None:
    """Balle and Wang 2018, theorem 8: delta of N(0, z^2), sensitivity 1; PLD is tight up to its grid."""
    epsilon = privacy_spent([PrivateRounds(1.0, 1.0)], 1e-6).epsilon

    def phi(x: float) -> float:
        return 0.5 * math.erfc(-x / math.sqrt(2))

    exact_delta = phi(0.5 - epsilon) - math.exp(epsilon) * phi(-0.5 - epsilon)
    assert exact_delta == pytest.approx(1e-6, rel=2e-3)


def test_hardly_any_noise_is_accounted_by_rdp_alone() -> None:
    """PLD would take minutes and gigabytes."""
    assert LEAST_PLD_NOISE <= 0.3
    spent = privacy_spent([PrivateRounds(0.01, 0.004, 5)], 1e-9)
    assert spent.epsilon == spent.epsilon_rdp > 1000


def test_a_delta_that_pld_cannot_reach_has_the_bound_of_rdp() -> None:
    """PLD's alone is infinite, as it cuts tails off; and the budget goes by the same figure."""
    spent = privacy_spent([PrivateRounds(1.0, 8.0)], 1e-20)
    assert spent.epsilon == spent.epsilon_rdp < 10
    one = StrategySettings("dp-ftrl", noise_multiplier=8.0, delta=1e-20, epsilon_budget=spent.epsilon)
    assert not over_budget([], one)


def test_rounds_known_by_their_renyi_divergences_alone_are_so_accounted() -> None:
    spent = privacy_spent([PrivateRounds(1.0, 8.0, rdp_only=True), PrivateRounds(1.0, 8.0)], 1e-9)
    assert spent.epsilon == spent.epsilon_rdp > privacy_spent([PrivateRounds(1.0, 8.0, 2)], 1e-9).epsilon


def test_nothing_spent_and_nothing_hidden() -> None:
    assert privacy_spent([], 1e-9).epsilon == privacy_spent([], 1e-9).epsilon_rdp == 0.0
    assert privacy_spent([PrivateRounds(0.01, 0.0)], 1e-9).epsilon == math.inf


def test_a_round_that_would_pass_the_budget_is_seen_before() -> None:
    three = privacy_spent([PrivateRounds(0.05, 4.0, 3)], 1e-6).epsilon
    one = StrategySettings("dp-fedavg", sampling=0.05, noise_multiplier=4.0, delta=1e-6, epsilon_budget=three)
    assert not over_budget([one] * 2, one)
    assert over_budget([one] * 3, one)
    assert over_budget([one] * 2, replace(one, epsilon_budget=math.nextafter(three, 0)))
    assert not over_budget([one] * 1000, replace(one, epsilon_budget=None))


def test_sampling_takes_each_with_its_probability() -> None:
    names = [f"phone{number:05}" for number in range(20_000)]
    taken = poisson_sample(names, 0.3)
    assert taken == sorted(set(taken))
    assert set(taken) <= set(names)
    # Binomial: 6 deviations either side, wrong once in 5e8 draws (the source cannot be seeded).
    assert abs(len(taken) - 6000) < 6 * math.sqrt(20_000 * 0.3 * 0.7)
    again = poisson_sample(names, 0.3)
    overlap = len(set(taken) & set(again))
    assert abs(overlap - 1800) < 6 * math.sqrt(20_000 * 0.09 * 0.91), "independent of the round before"


def test_nobody_can_foresee_a_draw() -> None:
    """The operating system draws, and no generator that somebody can seed."""
    names = [f"phone{number}" for number in range(200)]
    draws = []
    for _ in range(2):
        random.seed(1)
        np.random.seed(1)
        draws.append(poisson_sample(names, 0.5))
    assert draws[0] != draws[1]


def test_sampling_everyone_and_hardly_anyone() -> None:
    assert poisson_sample(["b", "a"], 1.0) == ["a", "b"]
    assert poisson_sample([], 0.5) == []
    assert poisson_sample(["a"] * 100, 1e-9) == []
    for bad in (0.0, -1.0, 1.5, math.nan):
        with pytest.raises(ValueError, match="sampling is"):
            poisson_sample(["a"], bad)
