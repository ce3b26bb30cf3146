"""FedAvg, the norm bound, FedAtt, median, trimmed mean, multi-Krum: held to NumPy on whole arrays and to the papers."""

import math
from collections.abc import Iterator

import numpy as np
import pytest

from phonograd.device_runtime.base.errors import WeightsError
from phonograd.device_runtime.formats.tensor_file import TILE_ELEMENTS, Array, TensorFile
from phonograd.server_agg.aggregation.settings import StrategySettings
from phonograd.server_agg.aggregation.stacked import BLOCK_ELEMENTS, block_length, stacked_deltas
from phonograd.server_agg.aggregation.strategies.attention import attention_of
from phonograd.server_agg.aggregation.strategy import RoundContext
from tests.server_agg.rounds_of_updates import (
    Round,
    Weights,
    all_bits,
    averaged,
    deltas_of,
    length,
    minus,
    model,
    random_weights,
    trained,
)
from tests.server_agg.trained_weights import MovedRows, TrainedWeights

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


ORDERS = {"1": 1, "2": 2, "inf": np.inf}


def fedatt_of_the_paper(server: Weights, phones: list[dict[str, Array]], epsilon: float, p: float) -> dict[str, Array]:
    """w_(t+1), layer by layer, by paper J's eq. 6 without its noise. Whole arrays, float64."""
    after = {}
    for layer, w in server.items():
        w = w.astype(np.float64)
        w_k = [phone[layer].astype(np.float64) for phone in phones]
        s = np.array([np.linalg.norm((w - each).ravel(), p) for each in w_k])
        alpha = np.exp(s) / np.exp(s).sum()
        gradient = sum(a * (w - each) for a, each in zip(alpha, w_k, strict=True))
        after[layer] = w - epsilon * gradient
    return after


@pytest.mark.parametrize(("p", "epsilon", "phones"), [("1", 0.4, 9), ("2", 1.2, 9), ("inf", 1.0, 2), ("2", 1.0, 1)])
def test_equals_the_papers_equations(p: str, epsilon: float, phones: int) -> None:
    shapes = {"embedding": (40, 6), "lstm.0.W": (1, 24, 6), "bias": (13,), "scale": (1,)}
    with model(random_weights(0, 1.0, shapes)) as base:
        server = {name: base.read(name) for name in base.specs}
        # Layers that moved by different amounts in different phones, so that attention differs between layers.
        updates = [trained(base, seed, scale=0.05 * seed) for seed in range(1, phones + 1)]
        settings = StrategySettings(strategy="fedatt", attention_norm=p, attention_step=epsilon)
        found = averaged(base, settings, updates)
        expected = fedatt_of_the_paper(server, updates, epsilon, ORDERS[p])
        for name, before in server.items():
            after = before.astype(np.float64) + found[name]
            assert np.abs(after - expected[name]).max() <= 1e-6
            moved = np.linalg.norm(expected[name] - before)
            assert np.linalg.norm(after - expected[name]) <= 1e-6 * moved, "1e-6 of the step itself, too"


def test_attention_is_softmax_and_stands_norms_of_any_size() -> None:
    norms = [{"a": 1000.0, "b": 0.0}, {"a": 1001.0, "b": 0.0}, {"a": 3.0, "b": 0.0}]
    attention = attention_of(norms)
    assert attention[1]["a"] == pytest.approx(math.e / (1 + math.e))
    assert attention[2]["a"] == 0.0
    assert [phone["b"] for phone in attention] == pytest.approx([1 / 3] * 3)
    assert attention_of([]) == []


def noises(key: bytes, number: int) -> Array:
    """The noise of FedAtt in units of its stated standard deviation, over 60,000 weights, three phones."""
    step, noise = 0.7, 0.3
    shapes = {"matrix": (300, 200), "bias": (3,)}
    with model(random_weights(0, 1.0, shapes)) as base:
        updates = [trained(base, seed, 1e-3 * seed) for seed in (1, 2, 3)]
        context = RoundContext(number, key)
        rounds = []
        for beta in (0.0, noise):
            settings = StrategySettings(strategy="fedatt", attention_step=step, attention_noise=beta)
            round_ = Round(base, settings, context)
            for update in updates:
                round_.take(TrainedWeights(update))
            rounds.append(round_.result()["matrix"])
        s = np.array([np.linalg.norm(deltas_of(base, update)["matrix"]) for update in updates])
    alpha = np.exp(s) / np.exp(s).sum()
    # The paper adds epsilon x alpha_k x beta N(0, sigma^2) for each phone: a normal number of this deviation.
    stated = step * noise * math.sqrt((alpha**2).sum())
    return ((rounds[1] - rounds[0]) / stated).ravel()


def test_noise_has_the_papers_variance() -> None:
    x = noises(bytes(32), 1)
    # Chi-square with 60,000 degrees of freedom, normal approximation, two-sided 99.99 %: 3.9 deviations of sqrt(2n).
    assert abs((x**2).sum() - len(x)) < 3.9 * math.sqrt(2 * len(x))
    assert abs(x.sum()) < 3.9 * math.sqrt(len(x))


def test_noise_is_of_the_key_and_the_round() -> None:
    first = noises(bytes(32), 1)
    assert np.array_equal(first, noises(bytes(32), 1))
    for other in (noises(bytes(32), 2), noises(bytes([1]) * 32, 1)):
        assert abs(np.corrcoef(first, other)[0, 1]) < 3.9 / math.sqrt(len(first))


ROBUST = {
    "median": StrategySettings(strategy="median"),
    "trimmed-mean": StrategySettings(strategy="trimmed-mean", trim_share=0.3),
    "multi-krum": StrategySettings(strategy="multi-krum", krum_byzantine=3),
}


@pytest.fixture
def base() -> Iterator[TensorFile]:
    with model() as file:
        yield file


def stacked_updates(base: TensorFile, updates: list[dict[str, Array]]) -> dict[str, Array]:
    """All deltas, [K, ...] by tensor."""
    every = [deltas_of(base, update) for update in updates]
    return {name: np.stack([deltas[name] for deltas in every]) for name in base.specs}


def equal(found: Weights, expected: Weights) -> None:
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_median_is_numpys(base: TensorFile, count: int) -> None:
    updates = [trained(base, seed) for seed in range(count)]
    expected = {name: np.median(deltas, axis=0) for name, deltas in stacked_updates(base, updates).items()}
    equal(averaged(base, ROBUST["median"], updates), expected)


@pytest.mark.parametrize(("count", "share", "trimmed"), [(1, 0.4, 0), (5, 0.19, 0), (5, 0.2, 1), (9, 0.49, 4)])
def test_trimmed_mean_is_numpys(base: TensorFile, count: int, share: float, trimmed: int) -> None:
    updates = [trained(base, seed) for seed in range(count)]
    expected = {
        name: np.sort(deltas, axis=0)[trimmed : count - trimmed].mean(axis=0)
        for name, deltas in stacked_updates(base, updates).items()
    }
    equal(averaged(base, StrategySettings(strategy="trimmed-mean", trim_share=share), updates), expected)


def krum_of_the_paper(base: TensorFile, updates: list[dict[str, Array]], f: int, m: int) -> dict[str, Array]:
    """Blanchard et al. 2017, section 4: scores over the n - f - 2 closest, distances taken directly."""
    flat = [np.concatenate([part.ravel() for part in deltas_of(base, update).values()]) for update in updates]
    n = len(flat)
    scores = []
    for i in range(n):
        others = sorted(float(((flat[i] - flat[j]) ** 2).sum()) for j in range(n) if j != i)
        scores.append(sum(others[: n - f - 2]))
    chosen = sorted(range(n), key=scores.__getitem__)[:m]
    return {name: deltas[chosen].mean(axis=0) for name, deltas in stacked_updates(base, updates).items()}


@pytest.mark.parametrize(("f", "selected", "kept"), [(0, 0, 11), (2, 0, 9), (4, 0, 7), (4, 1, 1), (1, 5, 5)])
def test_multi_krum_is_the_papers(base: TensorFile, f: int, selected: int, kept: int) -> None:
    updates = [trained(base, seed, scale=0.01 * (1 + seed % 3)) for seed in range(11)]
    settings = StrategySettings(strategy="multi-krum", krum_byzantine=f, krum_selected=selected)
    equal(averaged(base, settings, updates), krum_of_the_paper(base, updates, f, kept))


def test_updates_of_one_score_are_told_apart_by_their_hashes() -> None:
    """Not by who came first: of three that are as close to each other, the same is chosen in any order."""
    aim = random_weights(5)
    with model({name: np.zeros_like(array) for name, array in aim.items()}) as zero:
        round_ = Round(zero, StrategySettings(strategy="multi-krum", krum_byzantine=0, krum_selected=1))
        for sign in (1, 0, -1):
            round_.take(TrainedWeights({name: np.float32(sign) * array for name, array in aim.items()}))
        assert all_bits(round_.result()) == all_bits(round_.result(round_.updates[::-1]))


@pytest.mark.parametrize("name", sorted(ROBUST))
@pytest.mark.parametrize("attack", ["far away", "opposite", "each its own way", "claims"])
def test_a_hostile_minority_gets_nowhere(base: TensorFile, name: str, attack: str) -> None:
    """Seven honest phones that agree up to noise, three that do not: the result stays among the honest."""
    aim = random_weights(77, 0.05)
    honest = [{n: base.read(n) + aim[n] + noise for n, noise in random_weights(s, 0.005).items()} for s in range(7)]
    hostile = {
        "far away": [{n: base.read(n) + np.float32(100) for n in base.specs}] * 3,
        "opposite": [{n: base.read(n) - 20 * aim[n] for n in base.specs}] * 3,
        "each its own way": [trained(base, 900 + seed, 50.0) for seed in range(3)],
        "claims": [{n: base.read(n) - aim[n] for n in base.specs}] * 3,
    }[attack]
    tokens = [10] * 7 + [1_000_000] * 3
    found = averaged(base, ROBUST[name], [*honest, *hostile], tokens)
    assert length(minus(found, aim)) < 0.35 * length(aim)
    plain = averaged(base, StrategySettings(), [*honest, *hostile], tokens)
    assert length(minus(plain, aim)) > 1.5 * length(aim), "which fedavg is not safe from"


@pytest.mark.parametrize("count", [1, 3, 10, 256])
def test_blocks_fill_tiles_and_stay_within_their_budget(count: int) -> None:
    block = block_length(count)
    assert TILE_ELEMENTS % block == 0
    assert block * count <= BLOCK_ELEMENTS


def test_streams_of_any_cut_line_up(base: TensorFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 4 elements over tiles of some rows, the others left out: deltas are where they belong."""
    monkeypatch.setattr("phonograd.server_agg.aggregation.stacked.BLOCK_ELEMENTS", 12)
    updates = [trained(base, seed) for seed in range(3)]
    updates[1]["kernel"].reshape(-1)[5:23] = base.read("kernel").reshape(-1)[5:23]
    round_ = Round(base, ROBUST["median"])
    for number, update in enumerate(updates):
        round_.take(MovedRows(update, base), sha256=f"{number:064}")
    blocks = list(stacked_deltas(round_.updates, base))
    assert {block.shape for block in blocks} <= {(3, 4), (3, 1), (3, 3)}
    rows = np.concatenate(blocks, axis=1)
    for row, update in zip(rows, updates, strict=True):
        expected = np.concatenate([part.ravel() for part in deltas_of(base, update).values()])
        assert np.array_equal(row, expected)


def test_too_many_updates_to_read_at_once_are_refused(base: TensorFile) -> None:
    round_ = Round(base, ROBUST["median"])
    update = round_.take(TrainedWeights(trained(base, 1)))
    with pytest.raises(WeightsError, match="257 updates in a round, the limit of this strategy is 256"):
        round_.result([update] * 257)
