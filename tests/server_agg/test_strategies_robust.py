"""Median, trimmed mean and multi-Krum: NumPy on whole arrays, and a hostile minority."""

from collections.abc import Iterator

import numpy as np
import pytest

from phonograd.device_runtime.base.errors import WeightsError
from phonograd.device_runtime.formats.tensor_file import TILE_ELEMENTS, Array, TensorFile
from phonograd.server_agg.aggregation.stacked import BLOCK_ELEMENTS, block_length, stacked_deltas
from phonograd.server_agg.aggregation.strategies import StrategySettings
from tests.server_agg.rounds_of_updates import (
    Round,
    Sparse,
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
from tests.server_agg.trained_weights import TrainedWeights

ROBUST = {
    "median": StrategySettings(strategy="median"),
    "trimmed-mean": StrategySettings(strategy="trimmed-mean", trim_share=0.3),
    "multi-krum": StrategySettings(strategy="multi-krum", krum_byzantine=3),
}


@pytest.fixture
def base() -> Iterator[TensorFile]:
    with model() as file:
        yield file


def stacked(base: TensorFile, updates: list[dict[str, Array]]) -> dict[str, Array]:
    """All deltas, [K, ...] by tensor."""
    every = [deltas_of(base, update) for update in updates]
    return {name: np.stack([deltas[name] for deltas in every]) for name in base.specs}


def equal(found: Weights, expected: Weights) -> None:
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_median_is_numpys(base: TensorFile, count: int) -> None:
    updates = [trained(base, seed) for seed in range(count)]
    expected = {name: np.median(deltas, axis=0) for name, deltas in stacked(base, updates).items()}
    equal(averaged(base, ROBUST["median"], updates), expected)


@pytest.mark.parametrize(("count", "share", "trimmed"), [(1, 0.4, 0), (5, 0.19, 0), (5, 0.2, 1), (9, 0.49, 4)])
def test_trimmed_mean_is_numpys(base: TensorFile, count: int, share: float, trimmed: int) -> None:
    updates = [trained(base, seed) for seed in range(count)]
    expected = {
        name: np.sort(deltas, axis=0)[trimmed : count - trimmed].mean(axis=0)
        for name, deltas in stacked(base, updates).items()
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
    return {name: deltas[chosen].mean(axis=0) for name, deltas in stacked(base, updates).items()}


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
    """Blocks of 4 elements over tiles of 3, 7 and 100 of them, some left out: deltas are where they belong."""
    monkeypatch.setattr("phonograd.server_agg.aggregation.stacked.BLOCK_ELEMENTS", 12)
    updates = [trained(base, seed) for seed in range(3)]
    updates[1]["kernel"].reshape(-1)[5:23] = base.read("kernel").reshape(-1)[5:23]
    round_ = Round(base, ROBUST["median"])
    for update, tile in zip(updates, (3, 7, 100), strict=True):
        round_.take(Sparse(update, tile), sha256=f"{tile:064}")
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
