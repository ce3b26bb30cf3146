"""FedAvg, FedSGD and the norm bound against NumPy on whole arrays."""

import numpy as np
import pytest

from phonograd.server_agg.aggregation.strategies import StrategySettings
from tests.server_agg.rounds_of_updates import averaged, deltas_of, length, minus, model, trained

TOKENS = [3, 50, 1000]


@pytest.mark.parametrize("strategy", ["fedavg", "fedsgd"])
@pytest.mark.parametrize("weighting", ["tokens", "equal"])
def test_weighted_mean(strategy: str, weighting: str) -> None:
    with model() as base:
        updates = [trained(base, seed) for seed in (1, 2, 3)]
        found = averaged(base, StrategySettings(strategy=strategy, weighting=weighting), updates, TOKENS)
        weights = TOKENS if weighting == "tokens" else [1, 1, 1]
        for name in base.specs:
            deltas = [deltas_of(base, update)[name] for update in updates]
            exact = sum(w * delta for w, delta in zip(weights, deltas, strict=True)) / sum(weights)
            assert np.abs(found[name] - exact).max() <= 2.0**-32


@pytest.mark.parametrize("bound", [0.01, 0.05, 1.0])
def test_norm_bound_shortens_what_is_longer(bound: float) -> None:
    with model() as base:
        updates = [trained(base, seed, scale) for seed, scale in ((1, 1e-4), (2, 1e-3), (3, 10.0))]
        found = averaged(base, StrategySettings(strategy="norm-bound", norm_bound=bound), updates, TOKENS)
        expected = dict.fromkeys(base.specs, 0.0)
        for update, tokens in zip(updates, TOKENS, strict=True):
            deltas = deltas_of(base, update)
            factor = min(1.0, bound / length(deltas))
            expected = {name: expected[name] + tokens / 1053 * factor * deltas[name] for name in deltas}
        for name in base.specs:
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-6, atol=1e-9)
        assert length(found) <= bound


def test_a_hostile_phone_moves_a_bounded_mean_by_its_share_of_the_bound() -> None:
    with model() as base:
        honest = [trained(base, seed, 1e-3) for seed in range(1, 10)]
        settings = StrategySettings(strategy="norm-bound", norm_bound=0.02, weighting="equal")
        alone = {name: 0.9 * deltas for name, deltas in averaged(base, settings, honest).items()}  # nine of ten
        for scale in (1.0, 1e20):
            found = averaged(base, settings, [*honest, trained(base, 99, scale)])
            assert length(minus(found, alone)) == pytest.approx(0.02 / 10, rel=1e-6)
