"""The correlation of dp-ftrl's noise: inverse, sensitivity, error; against slow ways, and jax-privacy."""

import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phonograd.device_runtime.formats.tensor_file import Array
from phonograd.server_agg.aggregation.correlation.blt import Blt, from_decays
from phonograd.server_agg.aggregation.correlation.errors import running_sum_errors
from phonograd.server_agg.aggregation.correlation.optimise import optimise_blt
from phonograd.server_agg.aggregation.correlation.sensitivity import sensitivity
from phonograd.server_agg.aggregation.privacy.accountant import PrivateRounds, privacy_spent, zcdp_of
from tests.server_agg.ftrl_runs import matrix

JAX_PRIVACY = json.loads((Path(__file__).parents[1] / "golden/dp_ftrl.json").read_text())["rows"]
BLT = Blt((0.99, 0.7, 0.2), (0.05, 0.2, 0.3))


def patterns(rounds: int, separation: int, participations: int) -> Iterator[tuple[int, ...]]:
    """All ways to take part."""
    for times in range(1, participations + 1):
        for taken in itertools.combinations(range(rounds), times):
            if all(later - earlier >= separation for earlier, later in itertools.pairwise(taken)):
                yield taken


def brute_force(c: Array, separation: int, participations: int) -> float:
    return max(
        float(np.linalg.norm(c[:, list(taken)].sum(axis=1)))
        for taken in patterns(c.shape[1], separation, participations)
    )


def test_the_coefficients_are_those_of_the_paper_and_of_the_inverse() -> None:
    by_hand = [1.0, *(sum(s * d**j for s, d in zip(BLT.scales, BLT.decays, strict=True)) for j in range(11))]
    np.testing.assert_allclose(BLT.coefficients(12), by_hand, rtol=1e-14)
    np.testing.assert_allclose(matrix(BLT.coefficients(12)) @ matrix(BLT.inverse(12)), np.eye(12), atol=1e-14)


def test_streamed_noise_is_a_row_of_the_inverse_and_does_not_depend_on_the_tiles() -> None:
    normals = np.random.default_rng(1).standard_normal((30, 100))
    rows, buffers = [], np.zeros((100, 3))
    cut = np.zeros((100, 3))
    for at in normals:
        rows.append(BLT.row(at.copy(), buffers))
        pieces = [BLT.row(at[start : start + 7].copy(), cut[start : start + 7]) for start in range(0, 100, 7)]
        assert np.concatenate(pieces).tobytes() == rows[-1].tobytes()
    np.testing.assert_allclose(rows, np.linalg.solve(matrix(BLT.coefficients(30)), normals), atol=1e-12)
    assert cut.tobytes() == buffers.tobytes()


@pytest.mark.parametrize("separation", range(1, 9))
@pytest.mark.parametrize("participations", range(1, 5))
def test_the_sensitivity_is_the_worst_of_all_patterns(separation: int, participations: int) -> None:
    rng = np.random.default_rng(separation)
    for rounds in range(1, 9):
        for column in (np.sort(rng.uniform(0, 1, rounds))[::-1], BLT.coefficients(rounds), np.ones(rounds)):
            found = sensitivity(column, separation, participations)
            assert found == pytest.approx(brute_force(matrix(column), separation, participations), rel=1e-12)


def test_other_coefficients_have_no_such_formula() -> None:
    for column in ([1.0, 0.2, 0.3], [1.0, 0.5, -0.1]):
        with pytest.raises(ValueError, match="non-negative and non-increasing numbers expected"):
            sensitivity(np.array(column), 1, 1)
    for separation, participations in ((0, 1), (1, 0)):
        with pytest.raises(ValueError, match="1 or more expected of both"):
            sensitivity(np.ones(3), separation, participations)


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, marks=[pytest.mark.long] if row["rounds"] > 1000 else []) for row in JAX_PRIVACY],
    ids=lambda row: f"{row['rounds']}-{row['separation']}",
)
def test_jax_privacy_finds_the_same(row: dict[str, Any]) -> None:
    rounds, separation, participations = row["rounds"], row["separation"], row["participations"]
    theirs = Blt(tuple(row["decays"]), tuple(row["scales"]))
    np.testing.assert_allclose(theirs.inverse(8), row["inverse"], rtol=1e-9)
    assert sensitivity(theirs.coefficients(rounds), separation, participations) == pytest.approx(row["sensitivity"])
    assert max_error(theirs, rounds) == pytest.approx(row["max_error"])
    ours = optimise_blt(rounds, separation, participations, len(row["decays"]))
    if rounds < 100:
        assert ours == optimise_blt(rounds, separation, participations, len(row["decays"]))
    loss = sensitivity(ours.coefficients(rounds), separation, participations) * max_error(ours, rounds)
    assert loss < row["sensitivity"] * row["max_error"] * (1 + 2e-4)


def max_error(blt: Blt, rounds: int) -> float:
    """The running sum's error, which is largest in the last round."""
    return float(np.linalg.norm(blt.inverse(rounds).cumsum()))


@pytest.mark.parametrize("rounds", [1, 2, 9, 60])
@pytest.mark.parametrize("separation", [1, 3])
def test_any_run_has_a_correlation_that_is_no_worse_than_none(rounds: int, separation: int) -> None:
    blt = optimise_blt(rounds, separation, 2, 3)
    loss = sensitivity(blt.coefficients(rounds), separation, 2) * max_error(blt, rounds)
    alone = sensitivity(np.eye(rounds)[0], separation, 2) * math.sqrt(rounds)
    assert loss < alone * 1.001


@pytest.mark.parametrize(
    ("decays", "scales", "message"),
    [
        ((0.5,), (0.1, 0.2), "as many of both"),
        ((), (), "as many of both"),
        ((1.0,), (0.1,), "decays are .*, expected numbers between 0 and 1"),
        ((0.5,), (-0.1,), "scales are .*, expected numbers above 0"),
        ((0.5, 0.4), (0.6, 0.5), "scales are .*, 1 at most together"),
    ],
)
def test_a_correlation_that_is_none(decays: tuple[float, ...], scales: tuple[float, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Blt(decays, scales)


def test_decays_of_both_make_the_scales() -> None:
    blt = from_decays([0.9, 0.5], [0.7, 0.1])
    inverse = -(0.7 - 0.9) * (0.7 - 0.5) / (0.7 - 0.1), -(0.1 - 0.9) * (0.1 - 0.5) / (0.1 - 0.7)
    by_hand = [1.0, *(-inverse[0] * 0.7**j - inverse[1] * 0.1**j for j in range(9))]
    np.testing.assert_allclose(blt.inverse(10), by_hand, atol=1e-14)


@dataclass(frozen=True)
class Mechanism:
    """encode: C of noise C^-1 Z, or of a tree, whose nodes are added up by `decode` to running sums."""

    encode: Array
    decode: Array

    def error(self, separation: int, participations: int) -> float:
        return brute_force(self.encode, separation, participations) * math.sqrt(np.square(self.decode).sum(1).mean())


def tree_of(rounds: int, refined: bool) -> Mechanism:
    """Each node by its leaves; prefix sums by nodes, or by the best estimate of each node from those below it."""
    spans = [(level, at) for level in range(rounds.bit_length()) for at in range(rounds >> level)]
    leaves = np.array([[float(leaf >> level == at) for leaf in range(rounds)] for level, at in spans])
    decode = np.zeros((rounds, len(spans)))
    for ended in range(1, rounds + 1):
        at = 0
        for level in reversed(range(rounds.bit_length())):
            if ended >> level & 1:
                below = [
                    i for i, (low, node) in enumerate(spans) if low <= level and node >> (level - low) == at >> level
                ]
                chosen = below if refined else [spans.index((level, at >> level))]
                # The least-squares estimate of the node's sum from the nodes below it.
                inside = leaves[chosen][:, at : at + (1 << level)]
                decode[ended - 1, chosen] += np.linalg.pinv(inside).sum(axis=0) if refined else 1.0
                at += 1 << level
    return Mechanism(leaves, decode)


@pytest.mark.parametrize(
    ("rounds", "separation", "participations"), [(9, 9, 1), (9, 4, 2), (9, 2, 4), (9, 1, 3), (12, 4, 3)]
)
def test_errors_are_those_of_the_matrices(rounds: int, separation: int, participations: int) -> None:
    found = running_sum_errors(BLT, rounds, separation, participations)
    prefixes = np.tri(rounds)
    expected = {
        "blt": Mechanism(matrix(BLT.coefficients(rounds)), prefixes @ matrix(BLT.inverse(rounds))),
        "independent": Mechanism(np.eye(rounds), prefixes),
    }
    for name, mechanism in expected.items():
        assert getattr(found, name) == pytest.approx(mechanism.error(separation, participations))
    # Exactly `separation` rounds apart is not a tree's worst case, so its true error is larger.
    for name, refined in (("tree", False), ("refined_tree", True)):
        mine = tree_of(rounds, refined).error(separation, participations)
        assert getattr(found, name) <= mine * (1 + 1e-12)
        assert getattr(found, name) == pytest.approx(mine, rel=0.1)
        if participations == 1:
            assert getattr(found, name) == pytest.approx(mine)


@pytest.mark.parametrize(("separation", "participations"), [(1000, 1), (100, 10)])
def test_over_1000_rounds_it_has_less_than_half_the_error(separation: int, participations: int) -> None:
    blt = optimise_blt(1000, separation, participations, 4)
    found = running_sum_errors(blt, 1000, separation, participations)
    assert found.independent > 2 * found.blt
    assert found.tree > 2 * found.blt
    assert found.refined_tree > 1.5 * found.blt


def test_a_run_is_one_gaussian_mechanism() -> None:
    import dp_accounting

    for noise in (1.0, 8.0):
        exact = dp_accounting.get_epsilon_gaussian(noise, 1e-9)
        spent = privacy_spent([PrivateRounds(1.0, noise)], 1e-9)
        assert exact <= spent.epsilon * (1 + 1e-6)
        assert spent.epsilon == pytest.approx(exact, rel=1e-3)
        rho = zcdp_of(noise)
        assert rho == 0.5 / noise**2
        assert exact < rho + 2 * math.sqrt(rho * math.log(1e9))  # Bun and Steinke 2016, Proposition 1.3
