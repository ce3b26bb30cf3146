"""Pairs of adjacent sets as rows and units, and the error bars of Figure 4; the pairs themselves are made up."""

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import phonograd
from phonograd.papers.kinds import adjacent
from phonograd.papers.run import Context, Outcome
from phonograd.simulation.empirical.pairs import Pair
from phonograd.simulation.empirical.tail import Tail, fit_tail
from tests.support.artifacts import exported

MODEL = phonograd.LanguageModelConfig("lstm", vocabulary=20, embedding=8, hidden=8, layers=1)
ARTIFACTS = exported(MODEL, phonograd.TrainingConfig(minibatch=2, bptt=5), spread=8)


def tail(alpha: float, C: float, statistic: float = 1.0) -> Tail:
    return Tail(alpha, C, statistic, samples=100, used=20)


class Measured:
    """Stand-in for measure_pairs: alpha is K plus the pair's number in one direction, twice that in the other. Tails
    of the other don't pass, nor that of the least alpha of K 3.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[int, int, Path | None]] = []

    def __call__(self, *job: Any, numbers: Sequence[int], weights: Path | None) -> Iterator[Pair]:
        (number,), K = numbers, job[3].simulation.clients_per_round
        self.calls.append((K, number, weights))
        one, other = tail(K + number, 2.0, 1.2 if K + number == 3 == K else 1.0), tail(2 * (K + number), 2.0, 1.2)
        ways = [Pair("a", "b", one, np.empty(0)), Pair("b", "a", other, np.empty(0))]
        yield from ways if number % 2 else reversed(ways)


def run(tmp_path: Path, **settings: Any) -> Outcome:
    lines = [json.dumps({"user": f"user-{user}", "text": "w1 w2 w3 w4 " * 9}) for user in range(4)]
    (tmp_path / "users.jsonl").write_text("\n".join(lines))
    (tmp_path / "rehearsal.txt").write_text("w1 w2\n" * 40)
    given = {"artifacts": ARTIFACTS.folder, "users": tmp_path / "users.jsonl", "rehearsal": tmp_path / "rehearsal.txt"}
    given["weights"] = tmp_path / "round-100.safetensors"
    context = Context(1, tmp_path, tmp_path, 1, None, given, lambda *_: None)
    return adjacent.run(adjacent.Settings({}, **settings), context)


def test_the_direction_with_the_larger_epsilon_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = Measured()
    monkeypatch.setattr(adjacent, "measure_pairs", measured)
    outcome = run(tmp_path, sets=(2, 3), pairs=3)
    weights = tmp_path / "round-100.safetensors"
    assert measured.calls == [(K, number, weights) for K in (2, 3) for number in range(3)]
    assert outcome.units["K 2, median"]["alpha"] == [2, 3, 4]
    assert outcome.units["K 3, median"]["alpha, other direction"] == [6, 8, 10]
    assert [outcome.rows[f"K 3, {row}"]["alpha"] for row in ("smallest", "median", "largest")] == [3, 4, 5]
    assert outcome.rows["K 3, median, other direction"]["alpha"] == 8
    assert outcome.rows["K 3, share of pairs"] == {"passes": pytest.approx(2 / 3)}
    assert outcome.rows["K 2, delta 0.0001"] == {"epsilon": pytest.approx(math.log(2.0 / 1e-4) / 2)}
    assert outcome.rows["K 3, delta 0.0001"] == {"epsilon": pytest.approx(math.log(2.0 / 1e-4) / 4)}
    assert run(tmp_path, sets=(2, 3), pairs=3) == outcome and len(measured.calls) == 6  # kept


def test_points_of_a_tail_have_error_bars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The logarithm of the n-th largest ratio of P(c > x) = C x^-alpha varies by 1 / (alpha sqrt(n))."""
    log_ratios = (np.log(3.0) - np.log(np.random.default_rng(2).uniform(size=5000))) / 15
    pair = Pair("a", "b", fit_tail(log_ratios), log_ratios)
    monkeypatch.setattr(adjacent, "measure_pairs", lambda *_, **__: [pair, pair])
    rows = run(tmp_path, figure=True, pairs=1).rows
    point = rows["P(c > x) = 0.01"]
    assert point["x, low"] < point["x"] < point["x, high"]
    assert math.log(point["x, high"] / point["x, low"]) == pytest.approx(2 * 1.96 / (15 * math.sqrt(50)), rel=0.4)
    assert "x, low" not in rows["quantile 0.5"] and rows["fit"]["alpha"] == pair.tail.alpha
