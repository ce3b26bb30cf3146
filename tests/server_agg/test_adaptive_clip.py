"""Adaptive clipping: what the bound follows, what its count costs, and where it is kept."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from phonograd.device_runtime.formats.tensor_file import TensorFile
from phonograd.server_agg.aggregation.model_writer import write_model
from phonograd.server_agg.aggregation.privacy.adaptive_clip import AdaptiveClip
from phonograd.server_agg.aggregation.settings import StrategySettings
from phonograd.server_agg.aggregation.strategy import RoundContext
from tests.server_agg.rounds_of_updates import CONTEXT, Round, deltas_of, length, model, trained
from tests.server_agg.trained_weights import TrainedWeights

SETTINGS = StrategySettings(strategy="dp-fedavg", adaptive_clip=0.5, clip_norm=1.0, sampling=0.1)


@pytest.mark.parametrize("z", [0.3, 1.0, 8.0])
@pytest.mark.parametrize("phones", [3.0, 100.0, 5000.0])
@pytest.mark.parametrize(("quantile", "sensitivity"), [(0.1, 0.9), (0.5, 0.5), (0.9, 0.9)])
def test_count_and_deltas_together_have_the_noise_multiplier(
    quantile: float, sensitivity: float, phones: float, z: float
) -> None:
    clip = AdaptiveClip(quantile, phones, z)
    # Gaussian mechanisms on the same phones: multipliers add up as 1/z^2. A phone adds 1 - gamma or -gamma.
    assert clip.delta_noise_multiplier**-2 + (clip.count_std / sensitivity) ** -2 == pytest.approx(z**-2)
    assert z < clip.delta_noise_multiplier <= 1.16 * z


@pytest.mark.parametrize("first", [0.1, 30.0])
@pytest.mark.parametrize("share", [0.3, 0.5, 1.0])
@pytest.mark.parametrize("quantile", [0.2, 0.5, 0.9])
def test_the_bound_finds_the_quantile_of_the_phones_that_take_part(quantile: float, share: float, first: float) -> None:
    random = np.random.default_rng(1)
    clip = AdaptiveClip(quantile, 1000, 1.0)
    bound, found = first, []
    for _ in range(600):
        norms = random.lognormal(0.7, 0.5, random.poisson(1000 * share))
        bound = clip.next_bound(bound, len(norms), int((norms <= bound).sum()), random.standard_normal())
        found.append(bound)
    expected = np.quantile(random.lognormal(0.7, 0.5, 100_000), quantile)
    assert np.mean(found[-200:]) == pytest.approx(expected, rel=0.1)


def test_the_bound_of_an_idle_server_stays_but_for_the_noise() -> None:
    assert AdaptiveClip(0.9, 100, 0.0).next_bound(2.0, 0, 0, 5.0) == 2.0
    clip, random, bounds = AdaptiveClip(0.9, 100, 1.0), np.random.default_rng(1), [1.0]
    for _ in range(200):
        bounds.append(clip.next_bound(bounds[-1], 0, 0, random.standard_normal()))
    assert max(bounds) < 2 and min(bounds) > 0.5  # five standard deviations of the noise of 200 rounds


def test_the_bound_stays_in_range_whatever_the_noise() -> None:
    clip = AdaptiveClip(0.5, 1e-3, 1e3)
    assert clip.next_bound(2.0, 0, 0, 8.6) == pytest.approx(1.0)
    assert clip.next_bound(2.0, 0, 0, -8.6) == pytest.approx(4.0)
    assert clip.next_bound(1e6, 0, 0, -8.6) == 1e6


def closed(base: TensorFile, out: Path, settings: StrategySettings, scales: list[float]) -> str:
    """The model after a round of updates of these sizes, its file at `out`."""
    round_ = Round(base, settings)
    for seed, scale in enumerate(scales):
        round_.take(TrainedWeights(trained(base, seed, scale)))
    written, _ = write_model(settings, round_.aggregation, round_.updates, base, None, out, out, {})
    return written.sha256


def bound_in(path: Path) -> float:
    with TensorFile(path) as file:
        return float(file.metadata["clip_norm"])


@pytest.mark.parametrize(("scale", "direction"), [(1e-6, -1), (1e3, 1)])
def test_a_model_carries_the_next_rounds_bound(tmp_path: Path, scale: float, direction: int) -> None:
    quiet = dataclasses.replace(SETTINGS, noise_multiplier=0.0)
    few = [scale] * 5
    with model() as base:
        first = closed(base, tmp_path / "1", quiet, few)
        assert closed(base, tmp_path / "again", quiet, few) == first
    # All below it: b = 5 x 1/2 / m. All above it: b = -5 x 1/2 / m.
    moved = 0.2 * 2.5 / (0.1 * CONTEXT.population)
    assert bound_in(tmp_path / "1") == pytest.approx(np.exp(direction * moved))
    with TensorFile(tmp_path / "1") as second:
        closed(second, tmp_path / "2", dataclasses.replace(quiet, clip_norm=77.0), few)
        assert bound_in(tmp_path / "2") == pytest.approx(np.exp(2 * direction * moved))
        clipped = Round(second, quiet)
        update = trained(second, 1, 1e3)
        clipped.take(TrainedWeights(update))
        expected = bound_in(tmp_path / "1") / (0.1 * CONTEXT.population)
        assert length(deltas_of(second, update)) > 10
        assert length(clipped.result()) == pytest.approx(expected, rel=1e-6)


def test_noise_of_count_and_deltas_follows_from_the_key(tmp_path: Path) -> None:
    bounds, noises = set(), []
    with model() as base:
        for key in (b"a" * 32, b"b" * 32, b"a" * 32):
            round_ = Round(base, SETTINGS, RoundContext(3, key, CONTEXT.population))
            noises.append(np.concatenate([part.ravel() for part in round_.result().values()]))
            write_model(SETTINGS, round_.aggregation, [], base, None, tmp_path / "model", tmp_path / "model", {})
            bounds.add(bound_in(tmp_path / "model"))
    assert len(bounds) == 2
    clip = AdaptiveClip(0.5, 0.1 * CONTEXT.population, SETTINGS.noise_multiplier)
    std = clip.delta_noise_multiplier * SETTINGS.clip_norm / (0.1 * CONTEXT.population)
    assert np.std(noises[0]) == pytest.approx(std, rel=0.05)


def test_a_fixed_bound_leaves_no_trace(tmp_path: Path) -> None:
    with model() as base:
        closed(base, tmp_path / "model", StrategySettings(strategy="dp-fedavg"), [1.0])
    with TensorFile(tmp_path / "model") as file:
        assert "clip_norm" not in file.metadata


def test_per_layer_is_refused() -> None:
    with pytest.raises(ValueError, match="`per_layer` is True, expected False with `adaptive_clip`"):
        dataclasses.replace(SETTINGS, per_layer=True)
