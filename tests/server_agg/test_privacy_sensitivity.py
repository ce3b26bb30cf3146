"""One phone more or less moves a private mean by no more than its stated sensitivity, whatever that phone sends."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phonograd.device_runtime.formats.tensor_file import Array, TensorFile
from phonograd.server_agg.aggregation.norms import norms_of
from phonograd.server_agg.aggregation.privacy.mechanism import GaussianMean, clip_factors
from phonograd.server_agg.aggregation.strategies import StrategySettings
from tests.server_agg.rounds_of_updates import (
    CONTEXT,
    Round,
    averaged,
    deltas_of,
    length,
    minus,
    model,
    random_weights,
    trained,
)
from tests.server_agg.trained_weights import TrainedWeights

# Without noise, so that only what it must hide is left.
SILENT = StrategySettings(strategy="dp-fedavg", noise_multiplier=0.0, clip_norm=1.5, sampling=0.05, min_share=0.4)


@pytest.fixture(scope="module")
def base() -> Iterator[TensorFile]:
    with model() as file:
        yield file


@settings(max_examples=60, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("per_layer", [False, True])
@pytest.mark.parametrize("estimator", ["fixed", "clipped"])
def test_neighbouring_rounds_differ_by_the_sensitivity_at_most(
    estimator: str, per_layer: bool, data: st.DataObject, base: TensorFile
) -> None:
    strategy = dataclasses.replace(
        SILENT,
        estimator=estimator,
        per_layer=per_layer,
        token_cap=data.draw(st.sampled_from([None, 50]), label="token cap"),
        clip_norm=data.draw(st.sampled_from([1e-3, 1.5, 40.0]), label="S"),
    )
    bound = GaussianMean(strategy, CONTEXT.population, 0.0).sensitivity
    seed = data.draw(st.integers(0, 2**32), label="seed")
    others = data.draw(st.integers(0, 12), label="others")
    updates = [trained(base, seed + n, 10.0 ** data.draw(st.integers(-6, 6), label="scale")) for n in range(others)]
    if updates and data.draw(st.booleans(), label="the same direction"):
        updates = [updates[0]] * len(updates)
    tokens = data.draw(st.lists(st.integers(1, 200), min_size=others, max_size=others), label="tokens")
    hostile = data.draw(hostile_updates(base, updates[0] if updates else None), label="one more phone")
    claim = data.draw(st.sampled_from([1, 49, 50, 10_000_000]), label="its tokens")

    without = sum_over_divisor(base, strategy, updates, tokens)
    with_it = sum_over_divisor(base, strategy, [*updates, hostile], [*tokens, claim])
    assert length(minus(with_it, without)) <= bound


@st.composite
def hostile_updates(draw: st.DrawFn, base: TensorFile, other: dict[str, Array] | None) -> dict[str, Array]:
    """Far away, in one place, on the step of the fixed point, or against another phone."""
    kind = draw(st.sampled_from(["noise", "one element", "constant", "against another"]))
    size = draw(st.sampled_from([1e-9, 1e-4, 1.0, 1e10, 1e37]))
    if kind == "against another" and other is not None:
        return {name: base.read(name) - (other[name] - base.read(name)) for name in base.specs}
    if kind == "constant":
        return {name: base.read(name) + np.float32(size) for name in base.specs}
    weights = trained(base, draw(st.integers(0, 2**32)), size)
    if kind == "one element":
        weights = {name: base.read(name) for name in base.specs}
        weights["bias"][3] += np.float32(size)
    return weights


def sum_over_divisor(
    base: TensorFile, strategy: StrategySettings, updates: list[dict[str, Array]], tokens: list[int]
) -> dict[str, Array]:
    """The mean without noise, 0 for no phone, which is what both estimators give there."""
    return averaged(base, strategy, updates, tokens)


@pytest.mark.parametrize("estimator", ["fixed", "clipped"])
def test_the_bound_is_reached(estimator: str, base: TensorFile) -> None:
    """A bound twice too large would mean twice the noise: one long delta comes to within 1e-6 of S / divisor."""
    strategy = dataclasses.replace(SILENT, estimator=estimator)
    long = trained(base, 1, 100.0)
    mechanism = GaussianMean(strategy, CONTEXT.population, 0.0)
    expected = 1.5 / (0.05 * 100) if estimator == "fixed" else 1.5 / (0.05 * 100 * 0.4)
    assert length(averaged(base, strategy, [long])) == pytest.approx(expected, rel=1e-6)
    assert mechanism.sensitivity == pytest.approx(expected if estimator == "fixed" else 2 * expected)


@pytest.mark.parametrize("per_layer", [False, True])
def test_clipping_is_the_papers(per_layer: bool, base: TensorFile) -> None:
    update = random_weights(4, 1.0)
    update["bias"] = base.read("bias") + np.float32(1e-3)  # a short layer, which its own bound leaves alone
    deltas = deltas_of(base, update)
    scales = clip_factors(norms_of(TrainedWeights(update), base), 1.5, per_layer)
    for name, delta in deltas.items():
        norm, limit = (np.linalg.norm(delta), 1.5 / np.sqrt(3)) if per_layer else (length(deltas), 1.5)
        assert scales[name] == pytest.approx(min(1.0, limit / norm), rel=1e-8)
    assert length({name: scales[name] * delta for name, delta in deltas.items()}) <= 1.5


def test_fixed_and_clipped_divisors() -> None:
    fixed_settings = StrategySettings(clip_norm=2.0, sampling=0.1, min_share=0.5)
    fixed = GaussianMean(fixed_settings, 1000, 1.5)
    clipped = GaussianMean(dataclasses.replace(fixed_settings, estimator="clipped"), 1000, 1.5)
    assert [fixed.divisor(weight) for weight in (0, 80, 500)] == [100.0] * 3
    assert [clipped.divisor(weight) for weight in (0, 80, 500)] == [50.0, 80.0, 500.0]
    assert (fixed.sensitivity, clipped.sensitivity) == (0.02, 0.08)  # S/(qW), 2S/(qW_min)
    assert (fixed.noise_std, clipped.noise_std) == (0.03, 0.12)  # z x sensitivity


@pytest.mark.parametrize("cap", [None, 150])
@pytest.mark.parametrize("estimator", ["fixed", "clipped"])
def test_the_mean_is_numpys(estimator: str, cap: int | None, base: TensorFile) -> None:
    strategy = dataclasses.replace(SILENT, estimator=estimator, token_cap=cap, mean_weight=0.8)
    tokens = [30, 150, 1000, 75]
    updates = [trained(base, seed, 10.0**-seed) for seed in range(4)]
    weights = [1.0] * 4 if cap is None else [0.2, 1.0, 1.0, 0.5]
    population_weight = 0.8 * CONTEXT.population
    divisor = 0.05 * population_weight
    if estimator == "clipped":
        divisor = max(0.4 * divisor, sum(weights))
    found = averaged(base, strategy, updates, tokens)
    for name in base.specs:
        total = 0.0
        for weight, update in zip(weights, updates, strict=True):
            deltas = deltas_of(base, update)
            total = total + weight * min(1.0, 1.5 / length(deltas)) * deltas[name]
        np.testing.assert_allclose(found[name], total / divisor, rtol=2e-6, atol=2e-8)


@given(norm=st.floats(0, 1e30), limit=st.floats(1e-6, 1e6))
def test_a_clipped_norm_is_below_the_bound(norm: float, limit: float) -> None:
    (scale,) = clip_factors({"w": norm}, limit, per_layer=False).values()
    assert 0 < scale <= 1
    assert scale * norm <= limit
    if norm <= limit * (1 - 2.0**-30):
        assert scale == 1.0


def test_truncation_never_lengthens(base: TensorFile) -> None:
    """Steps are cut off towards zero: a delta of 1.9 steps is 1 step, of -1.9 steps -1."""
    step = np.float32(2.0**-32)
    with model({"w": np.zeros(4, np.float32)}) as zero:
        round_ = Round(zero, dataclasses.replace(SILENT, sampling=1.0, mean_weight=0.01))
        round_.take(TrainedWeights({"w": step * np.array([1.9, -1.9, 0.9, -0.9], np.float32)}))
        assert (round_.result()["w"] / step).tolist() == [1.0, -1.0, 0.0, 0.0]
