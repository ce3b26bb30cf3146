"""FedAtt held to an independent transcription of paper J's equations."""

import math

import numpy as np
import pytest

from phonograd.device_runtime.formats.tensor_file import Array
from phonograd.server_agg.aggregation.strategies import RoundContext, StrategySettings
from phonograd.server_agg.aggregation.strategies.attention import attention_of
from tests.server_agg.rounds_of_updates import Round, Weights, averaged, deltas_of, model, random_weights, trained
from tests.server_agg.trained_weights import TrainedWeights

ORDERS = {"1": 1, "2": 2, "inf": np.inf}


def fedatt_of_the_paper(server: Weights, phones: list[dict[str, Array]], epsilon: float, p: float) -> dict[str, Array]:
    """w_(t+1), layer by layer, as paper J writes it; no noise. Whole arrays, float64."""
    after = {}
    for layer, w in server.items():
        w = w.astype(np.float64)
        w_k = [phone[layer].astype(np.float64) for phone in phones]
        s = np.array([np.linalg.norm((w - each).ravel(), p) for each in w_k])  # eq. 2
        alpha = np.exp(s) / np.exp(s).sum()  # eqs. 3, 4
        gradient = sum(a * (w - each) for a, each in zip(alpha, w_k, strict=True))  # eq. 5
        after[layer] = w - epsilon * gradient  # eq. 6
    return after


@pytest.mark.parametrize("p", ["1", "2", "inf"])
@pytest.mark.parametrize("epsilon", [0.4, 1.0, 1.2])
@pytest.mark.parametrize("phones", [1, 2, 9])
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


def test_a_phone_that_moved_further_weighs_more() -> None:
    with model() as base:
        near, far = trained(base, 1, 0.01), trained(base, 2, 1.0)
        settings = StrategySettings(strategy="fedatt", attention_step=1.0)
        found = averaged(base, settings, [near, far])["kernel"]
        mean = (deltas_of(base, near)["kernel"] + deltas_of(base, far)["kernel"]) / 2
        assert np.linalg.norm(found) > 1.5 * np.linalg.norm(mean)


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
