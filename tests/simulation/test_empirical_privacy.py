"""The tail of likelihood ratios, held to statsmodels and to distributions that are known."""

import html
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from statsmodels.stats.diagnostic import lilliefors as reference

import phonograd
from phonograd.api.simulating import empirical_privacy
from phonograd.simulation.empirical import pairs, tail
from phonograd.simulation.empirical.page import exponential_plot, quantile_plot, tail_plot
from phonograd.simulation.empirical.pairs import Pair, PrivacySettings, measure_pairs
from phonograd.simulation.empirical.tail import epsilon_of, fit_tail, lilliefors
from phonograd.simulation.server import Arrival, close_round
from tests.support.artifacts import exported
from tests.support.command_line import Run

MODEL = phonograd.LanguageModelConfig("lstm", vocabulary=20, embedding=8, hidden=8, layers=1)
ARTIFACTS = exported(MODEL, phonograd.TrainingConfig(minibatch=2, bptt=5), spread=8)
USERS = {
    f"user-{user}": [f"w{(user + line) % 6} w{user} w{(user * line) % 4}" for line in range(30)] for user in range(6)
}
ADDED, REPLACED = "add or remove one user's whole text", "replace one user's whole text by another's"


def test_lilliefors_statistic_is_that_of_statsmodels() -> None:
    random = np.random.default_rng(1)
    for values in (random.exponential(2.0, 50), random.uniform(0, 1, 333), random.lognormal(size=20)):
        assert lilliefors(values) == pytest.approx(np.sqrt(len(values)) * reference(values, "exp")[0], rel=1e-12)


def test_a_known_tail_is_found() -> None:
    """P(c > x) = C x^-alpha, drawn by its inverse."""
    uniforms = np.random.default_rng(2).uniform(size=200_000)
    tail = fit_tail((np.log(3.0) - np.log(uniforms)) / 15)
    assert tail.alpha == pytest.approx(15, rel=0.1)
    assert abs(tail.C - 3.0) < 1.5
    assert tail.passes
    assert (tail.samples, tail.used) == (200_000, 894)
    assert tail.epsilon(1e-4) == epsilon_of(tail.alpha, tail.C, 1e-4)
    assert not fit_tail(uniforms).passes  # no Pareto tail
    assert epsilon_of(10, 1e-5, 1e-4) == 0
    # Of k = 20 ratios 19 exceed the smallest, each by 1/2: 1 / α is their mean.
    assert fit_tail(np.repeat([0.5, 0.0], [19, 81])).alpha == 2


@pytest.mark.parametrize("ratios", [np.zeros(1000), np.ones(99), np.full(1000, np.inf)])
def test_ratios_without_a_tail_are_refused(ratios: np.ndarray) -> None:
    with pytest.raises(phonograd.TrainingError, match="likelihood ratios"):
        fit_tail(ratios)


def test_pairs_of_adjacent_sets_are_measured() -> None:
    simulation = phonograd.SimulationSettings(clients_per_round=3, text_bytes=200, seed=2)
    settings = PrivacySettings(pairs=2, texts=400, words=3, simulation=simulation)
    heard: list[tuple[int, int]] = []
    found = empirical_privacy(ARTIFACTS, USERS, settings, workers=1, progress=lambda *pairs: heard.append(pairs))
    assert heard == [(1, 2), (2, 2)]
    assert found == empirical_privacy(ARTIFACTS, USERS, settings, workers=1)
    users = {user: [message.encode() for message in messages] for user, messages in USERS.items()}
    assert list(measure_pairs(ARTIFACTS, users, [], settings, 1, numbers=[1])) == found[2:]
    assert [pair.user for pair in found[::2]] == [pair.other for pair in found[1::2]]
    for pair in found:
        assert pair.user != pair.other
        assert pair.tail.alpha > 0
        assert pair.log_ratios.mean() > 1e-4  # a model's own texts are likelier under it than under the other one
        assert (pair.tail.samples, pair.tail.used) == (400, 40)
    with pytest.raises(phonograd.TextError, match=r"more than 6 with enough text expected .*, found 6"):
        many = phonograd.SimulationSettings(clients_per_round=6)
        empirical_privacy(ARTIFACTS, USERS, PrivacySettings(simulation=many), workers=1)


def adjacent(size: int, weights: Path | None = None) -> list[Pair]:
    users = {user: [message.encode() for message in messages] for user, messages in USERS.items()}
    simulation = phonograd.SimulationSettings(clients_per_round=size, text_bytes=200, seed=2)
    settings = PrivacySettings(pairs=1, texts=200, words=3, simulation=simulation)
    return list(measure_pairs(ARTIFACTS, users, [], settings, 1, weights=weights))


def test_the_users_that_differ_are_the_same_for_sets_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    sets: list[set[str]] = []

    def close(settings: Any, number: int, base: Any, sha256: str, arrivals: list[Arrival], *rest: Any) -> Any:
        sets.append({arrival.user for arrival in arrivals})
        return close_round(settings, number, base, sha256, arrivals, *rest)

    monkeypatch.setattr(pairs, "close_round", close)
    found = [(pair.user, pair.other) for size in (2, 4) for pair in adjacent(size)]
    assert found[:2] == found[2:]
    for first, second in (sets[:2], sets[2:]):
        assert (first - second, second - first) == ({found[0][0]}, {found[0][1]})
    assert [len(one) for one in sets] == [2, 2, 4, 4]


def test_phones_train_the_weights_that_are_given(tmp_path: Path) -> None:
    copy, trained = tmp_path / "copy.safetensors", tmp_path / "trained.safetensors"
    copy.write_bytes(ARTIFACTS.path("weights.safetensors").read_bytes())
    assert adjacent(2, copy) == adjacent(2)
    phonograd.train(ARTIFACTS.folder, USERS["user-1"], out=trained)
    assert adjacent(2, trained)[0].tail != adjacent(2)[0].tail


def test_the_papers_table_8(phono: Run) -> None:
    found = phono("privacy", "--reproduce-table", "8", "--json").document
    assert found == {"epsilon": [0.67, 0.83, 0.99], "neighbours": REPLACED}
    assert REPLACED in " ".join(phono("privacy", "--reproduce-table", "8").out.split())


def test_epsilon_of_paper_m_without_a_server(phono: Run) -> None:
    """dp-accounting 0.6 gives 4.18 by RDP and 3.89 by PLD, where the paper's moments accountant gave 4.634."""
    options = ["privacy", "epsilon", "--population", 763430, "--per-round", 5000, "--noise", 1, "--rounds", 5000]
    options += ["--delta", 1e-9]
    document = phono(*options, "--json").document
    assert document["epsilon"] == pytest.approx(3.89, abs=0.01)
    assert document["epsilon_rdp"] == pytest.approx(4.18, abs=0.01)
    assert phono(*options, "--noise", 0, "--json").document["epsilon"] is None
    silent = phono(*options, "--noise", 0).out
    assert (silent.count("infinite"), document["neighbours"], document["neighbours"] in silent) == (2, ADDED, True)
    many = phono(*options, "--per-round", 763431)
    assert (many.code, "--per-round: at most --population (763430) expected" in many.err) == (2, True)


@pytest.mark.long
def test_the_command_measures_pairs(tmp_path: Path, phono: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [json.dumps({"user": user, "text": text}) for user, messages in USERS.items() for text in messages]
    (tmp_path / "users.jsonl").write_text("\n".join(lines))
    options = ["privacy", "empirical", ARTIFACTS.folder, "--users", tmp_path / "users.jsonl", "--workers", 1]
    options += ["--clients-per-round", 2, "--set", "training.text_bytes=200"]
    options += ["--set", "empirical.pairs=1", "--set", "empirical.texts=200", "--set", "empirical.words=3"]
    monkeypatch.setattr(tail, "CRITICAL_VALUE", 0.0)
    table = phono(*options).out
    assert (table.count("0 of 2"), table.count("withheld: no tail fits")) == (3, 3)
    assert REPLACED in " ".join(table.split())
    monkeypatch.setattr(tail, "CRITICAL_VALUE", 100.0)
    document = phono(*options, "--page", tmp_path / "page.html", "--json").document
    assert (document["passing"], document["pairs"][0]["passes"]) == (True, True)
    assert None not in document["epsilon"]
    (tmp_path / "study.toml").write_text("[rounds]\nmasked = true")
    masked = phono(*options, "--config", tmp_path / "study.toml")
    assert (masked.code, "rounds.masked is true, expected rounds that average" in masked.err) == (2, True)
    page = (tmp_path / "page.html").read_text()
    assert page.count("<svg") == 3
    assert document["neighbours"] == REPLACED
    assert REPLACED in html.unescape(page)
    assert f"<td>{document['pairs'][0]['user']}</td>" in page


def test_figure_4_shows_the_tail_and_its_fit() -> None:
    """Drawn from a known tail, the plotted points lie on the fitted lines."""
    log_ratios = (np.log(3.0) - np.log(np.random.default_rng(2).uniform(size=200_000))) / 15
    pair = Pair("a", "b", fit_tail(log_ratios), log_ratios)
    (left, right, quantiles) = (draw(plot, pair) for plot in (tail_plot, exponential_plot, quantile_plot))
    (texts, fit) = left.lines
    x, share = texts.get_data()
    used = x >= fit.get_xdata()[0]
    assert used.sum() == pair.tail.used
    assert np.allclose(share[used], pair.tail.C * x[used] ** -pair.tail.alpha, rtol=0.35, atol=1e-5)
    assert sum(bar.get_height() * bar.get_width() for bar in right.patches) == pytest.approx(1)
    expected, found = quantiles.lines[0].get_data()
    assert np.allclose(expected[: len(expected) * 9 // 10], found[: len(found) * 9 // 10], atol=0.02)


def draw(plot: Callable[[Any, Pair], None], pair: Pair) -> Any:
    _, axes = plt.subplots()
    plot(axes, pair)
    plt.close()
    return axes
