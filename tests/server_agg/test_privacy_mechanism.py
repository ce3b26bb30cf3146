"""Noise of the stated variance that no places share; a mean that one phone moves as stated; a bound that follows."""

import dataclasses
import hashlib
import itertools
import math
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from phonograd.device_runtime.formats.tensor_file import Array, TensorFile
from phonograd.server_agg.aggregation.model_writer import write_model
from phonograd.server_agg.aggregation.privacy.adaptive_clip import AdaptiveClip
from phonograd.server_agg.aggregation.privacy.mechanism import GaussianMean, clip_factors, poisson_sample
from phonograd.server_agg.aggregation.privacy.noise import BLOCK, NoiseStream, delta_of_end
from phonograd.server_agg.aggregation.settings import StrategySettings
from phonograd.server_agg.aggregation.strategy import RoundContext
from tests.server_agg.rounds_of_updates import (
    CONTEXT,
    Round,
    all_bits,
    averaged,
    deltas_of,
    length,
    minus,
    model,
    random_weights,
    trained,
)
from tests.server_agg.trained_weights import TrainedWeights

KEY = bytes(range(32))
COUNT = 200_000
# Two-sided normal quantile of 99.99 %: a right implementation fails such a check once in 10,000 keys, and the key is
# fixed.
Z = 3.8906


def standard(key: bytes = KEY, number: int = 1, tensor: str = "w", purpose: str = "dp", count: int = COUNT) -> Array:
    return NoiseStream(key, number, purpose).normals(tensor, 0, count)


def expect_standard_normal(x: Array) -> None:
    """Mean, variance (chi-square) and shape (Kolmogorov-Smirnov) at 99.99 % each."""
    n = len(x)
    assert abs(x.mean()) < Z / math.sqrt(n)
    assert abs((x**2).sum() - n) < Z * math.sqrt(2 * n)  # chi-square with n degrees, normal from n = 1,000 on
    ordered = np.sort(x)
    cdf = np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in ordered])
    ranks = np.arange(n + 1) / n
    distance = max((ranks[1:] - cdf).max(), (cdf - ranks[:-1]).max())
    assert distance < math.sqrt(-math.log(1e-4 / 2) / 2) / math.sqrt(n)  # Kolmogorov's limit distribution


def test_the_stream_is_standard_normal() -> None:
    x = standard()
    expect_standard_normal(x)
    # Tails too: of N(0, 1), 6.3e-5 lie beyond 4.
    beyond = int((np.abs(x) > 4).sum())
    expected = COUNT * math.erfc(4 / math.sqrt(2))
    assert abs(beyond - expected) < Z * math.sqrt(expected)
    assert np.abs(x).max() < 8.6


class AllZero:
    """A hash whose bits are all 0 but for the last word: what one block in 2**64 has somewhere."""

    def __init__(self, last: int):
        self.last = last

    def digest(self, length: int) -> bytes:
        return bytes(length - 8) + self.last.to_bytes(8, "little")


@pytest.mark.parametrize("last", [0, 12345, 2**64 - 1])
def test_the_noise_ends_where_its_delta_says(monkeypatch: pytest.MonkeyPatch, last: int) -> None:
    """128 bits all 0 are the farthest that a pair of numbers gets, and what lies beyond is the delta that is stated."""
    monkeypatch.setattr(hashlib, "shake_256", lambda data: AllZero(last))
    x = standard(count=BLOCK)
    assert x[0] == pytest.approx(math.sqrt(-2 * math.log((last + 1) / 2.0**128)), rel=1e-12)
    assert np.isfinite(x).all()
    beyond = math.exp(-(x[0] ** 2) / 2)  # of a pair of Gaussian numbers: Rayleigh's distribution
    pairs = 100 * 1_000_000 / 2
    if last == 0:
        assert delta_of_end(1_000_000, 100, 3.0) == pytest.approx(math.exp(3) * pairs * beyond, rel=1e-9)


def test_the_end_of_the_noise_is_far_below_any_delta_in_use() -> None:
    assert 0 < delta_of_end(10**9, 10**6, 10.0) < 1e-18
    assert delta_of_end(1, 1, math.inf) == math.inf


def test_neighbours_are_independent() -> None:
    x = standard()
    for lag in (1, 2, BLOCK // 2, BLOCK):  # BLOCK // 2: cosine and sine of one angle
        assert abs((x[:-lag] * x[lag:]).mean()) < Z / math.sqrt(COUNT - lag)
        assert abs(((x[:-lag] ** 2 - 1) * (x[lag:] ** 2 - 1)).mean()) < 2 * Z / math.sqrt(COUNT - lag)


def test_it_depends_on_the_position_and_not_on_how_it_is_cut() -> None:
    whole = standard(count=3 * BLOCK + 5)
    stream = NoiseStream(KEY, 1, "dp")
    for start, stop in ((0, 1), (BLOCK - 1, BLOCK + 1), (7, 3 * BLOCK + 5), (2 * BLOCK, 3 * BLOCK), (9, 9)):
        assert np.array_equal(stream.normals("w", start, stop), whole[start:stop])


def test_no_two_places_share_noise() -> None:
    """Streams of another key, round, tensor, purpose or block have nothing in common, and no correlation."""
    count = 3 * BLOCK
    streams = [
        standard(count=count),
        standard(key=bytes([255, *KEY[1:]]), count=count),
        standard(number=2, count=count),
        standard(number=257, count=count),
        standard(tensor="w2", count=count),
        standard(tensor="", count=count),
        standard(purpose="fedatt", count=count),
        standard(tensor="aw", count=count),
        standard(purpose="dpa", count=count),  # no field runs into the next
    ]
    blocks = [stream[start : start + BLOCK] for stream in streams for start in range(0, count, BLOCK)]
    for one, other in itertools.combinations(blocks, 2):
        assert not np.isin(one[:1000], other[:1000]).any()
        assert abs((one * other).mean()) < 5 / math.sqrt(BLOCK)  # 351 pairs: 5 deviations, 1 in 5,000 in all


@pytest.mark.parametrize("key", [b"", bytes(31), bytes(33)])
def test_a_short_key_is_refused(key: bytes) -> None:
    with pytest.raises(ValueError, match=f"noise_key has {len(key)} bytes, expected 32 from a cryptographic source"):
        NoiseStream(key, 1, "dp")


SHAPES = {"matrix": (250, 300), "vector": (500,)}


def noise_of_a_round(settings: StrategySettings, context: RoundContext) -> dict[str, Array]:
    """What a round adds to the same mean without noise."""
    with model(random_weights(0, 1.0, SHAPES)) as base:
        results = []
        for multiplier in (settings.noise_multiplier, 0.0):
            round_ = Round(base, structs.replace(settings, noise_multiplier=multiplier), context)
            for seed in range(3):
                round_.take(TrainedWeights(trained(base, seed)))
            results.append(round_.result())
    return {name: results[0][name] - results[1][name] for name in SHAPES}


@pytest.mark.parametrize("estimator", ["fixed", "clipped"])
@pytest.mark.parametrize("strategy", ["dp-fedavg", "dp-fedsgd"])
def test_a_rounds_noise_has_the_stated_variance_and_shape(strategy: str, estimator: str) -> None:
    settings = StrategySettings(strategy=strategy, estimator=estimator, noise_multiplier=0.7, sampling=0.3)
    mechanism = GaussianMean(settings, CONTEXT.population, settings.noise_multiplier)
    sensitivity = 15 / (0.3 * 100) if estimator == "fixed" else 2 * 15 / (0.3 * 100 * 0.5)
    assert mechanism.noise_std == pytest.approx(0.7 * sensitivity)
    noise = noise_of_a_round(settings, CONTEXT)
    expect_standard_normal(np.concatenate([part.ravel() for part in noise.values()]) / (0.7 * sensitivity))


@pytest.mark.parametrize(
    "settings",
    [StrategySettings(strategy="dp-fedavg"), StrategySettings(strategy="fedatt", attention_noise=0.1)],
    ids=lambda settings: settings.strategy,
)
def test_frozen_tensors_get_none(settings: StrategySettings) -> None:
    with model(random_weights(0, 1.0, SHAPES), {"frozen": "vector"}) as base:
        round_ = Round(base, settings)
        for seed in range(2):
            round_.take(TrainedWeights({"matrix": trained(base, seed)["matrix"]}))
        result = round_.result()
    assert not result["vector"].any()
    assert result["matrix"].all()


def test_rounds_and_tensors_of_one_key_never_share_noise() -> None:
    settings = StrategySettings(strategy="dp-fedavg")
    first = noise_of_a_round(settings, CONTEXT)
    again = noise_of_a_round(settings, CONTEXT)
    other = noise_of_a_round(settings, dataclasses.replace(CONTEXT, number=CONTEXT.number + 1))
    assert all_bits(first) == all_bits(again), "a round closed again after a crash"
    for name in SHAPES:
        assert not (first[name] == other[name]).any()
    assert not np.isin(first["vector"], first["matrix"]).any()


def test_released_sums_lie_on_whole_steps() -> None:
    """Sum and noise are whole numbers of 2**-32: low bits do not tell which noise was added to what."""
    settings = StrategySettings(strategy="dp-fedavg", sampling=0.5, clip_norm=1e-4)
    with model() as base:
        round_ = Round(base, settings)
        round_.take(TrainedWeights(trained(base, 1)))
        divisor = 0.5 * CONTEXT.population
        steps = np.concatenate([part.ravel() for part in round_.result().values()]) * divisor * 2.0**32
    assert np.abs(steps - np.rint(steps)).max() < 1e-6
    assert np.abs(steps).max() > 1000


# Without noise, so that only what it must hide is left.
SILENT = StrategySettings(strategy="dp-fedavg", noise_multiplier=0.0, clip_norm=1.5, sampling=0.05, min_share=0.4)


@pytest.fixture(scope="module")
def base() -> Iterator[TensorFile]:
    with model() as file:
        yield file


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_neighbouring_rounds_differ_by_the_sensitivity_at_most(data: st.DataObject, base: TensorFile) -> None:
    strategy = structs.replace(
        SILENT,
        estimator=data.draw(st.sampled_from(["fixed", "clipped"]), label="estimator"),
        per_layer=data.draw(st.booleans(), label="per layer"),
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

    without = averaged(base, strategy, updates, tokens)
    with_it = averaged(base, strategy, [*updates, hostile], [*tokens, claim])
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


@pytest.mark.parametrize("estimator", ["fixed", "clipped"])
def test_the_bound_is_reached(estimator: str, base: TensorFile) -> None:
    """A bound twice too large would mean twice the noise: one long delta comes to within 1e-6 of S / divisor."""
    strategy = structs.replace(SILENT, estimator=estimator)
    long = trained(base, 1, 100.0)
    mechanism = GaussianMean(strategy, CONTEXT.population, 0.0)
    expected = 1.5 / (0.05 * 100) if estimator == "fixed" else 1.5 / (0.05 * 100 * 0.4)
    assert length(averaged(base, strategy, [long])) == pytest.approx(expected, rel=1e-6)
    assert mechanism.sensitivity == pytest.approx(expected if estimator == "fixed" else 2 * expected)


def test_frozen_tensors_have_no_share_of_the_bound() -> None:
    """One of two tensors is frozen, so the other gets all of S."""
    settings = structs.replace(SILENT, per_layer=True)
    with model(random_weights(0, 1.0, SHAPES), {"frozen": "vector"}) as base:
        long = {"matrix": trained(base, 1, 100.0)["matrix"]}
        expected = settings.clip_norm / (settings.sampling * CONTEXT.population)
        assert length(averaged(base, settings, [long])) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("per_layer", [False, True])
def test_clipping_is_the_papers(per_layer: bool, base: TensorFile) -> None:
    update = random_weights(4, 1.0)
    update["bias"] = base.read("bias") + np.float32(1e-3)  # a short layer, which its own bound leaves alone
    deltas = deltas_of(base, update)
    scales = clip_factors(TrainedWeights(update).on(base).norms(), 1.5, per_layer)
    for name, delta in deltas.items():
        norm, limit = (np.linalg.norm(delta), 1.5 / np.sqrt(3)) if per_layer else (length(deltas), 1.5)
        assert scales[name] == pytest.approx(min(1.0, limit / norm), rel=1e-8)
    assert length({name: scales[name] * delta for name, delta in deltas.items()}) <= 1.5


@pytest.mark.parametrize("cap", [None, 150])
@pytest.mark.parametrize("estimator", ["fixed", "clipped"])
def test_the_mean_is_numpys(estimator: str, cap: int | None, base: TensorFile) -> None:
    strategy = structs.replace(SILENT, estimator=estimator, token_cap=cap, mean_weight=0.8)
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
        round_ = Round(zero, structs.replace(SILENT, sampling=1.0, mean_weight=0.01))
        round_.take(TrainedWeights({"w": step * np.array([1.9, -1.9, 0.9, -0.9], np.float32)}))
        assert (round_.result()["w"] / step).tolist() == [1.0, -1.0, 0.0, 0.0]


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


def close_round(base: TensorFile, out: Path, settings: StrategySettings, scales: list[float]) -> str:
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
    quiet = structs.replace(SETTINGS, noise_multiplier=0.0)
    few = [scale] * 5
    with model() as base:
        first = close_round(base, tmp_path / "1", quiet, few)
        assert close_round(base, tmp_path / "again", quiet, few) == first
    # All below it: b = 5 x 1/2 / m. All above it: b = -5 x 1/2 / m.
    moved = 0.2 * 2.5 / (0.1 * CONTEXT.population)
    assert bound_in(tmp_path / "1") == pytest.approx(np.exp(direction * moved))
    with TensorFile(tmp_path / "1") as second:
        close_round(second, tmp_path / "2", structs.replace(quiet, clip_norm=77.0), few)
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
        close_round(base, tmp_path / "model", StrategySettings(strategy="dp-fedavg"), [1.0])
    with TensorFile(tmp_path / "model") as file:
        assert "clip_norm" not in file.metadata


def test_per_layer_is_refused() -> None:
    with pytest.raises(ValueError, match="`per_layer` is True, expected False with `adaptive_clip`"):
        structs.replace(SETTINGS, per_layer=True)


def test_a_sample_cannot_be_drawn_again() -> None:
    names, samples = [f"phone{number}" for number in range(200)], []
    for _ in range(2):
        random.seed(1)
        samples.append(poisson_sample(names, 0.5))
    assert samples[0] != samples[1]
