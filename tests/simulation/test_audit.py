"""The bound is held to closed forms, to brute force and to the paper; a training without noise is found out."""

import json
import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from scipy.stats import binom

import phonograd
from phonograd.device_runtime.base.errors import StateError
from phonograd.server_agg.settings.masked import MaskedSettings
from phonograd.simulation.attacks.audit import coins_of, messages_of, repeat, right_guesses
from phonograd.simulation.attacks.bound import chance_of_right, epsilon_at_least
from phonograd.simulation.folder import read_record
from phonograd.simulation.simulator import Simulation, Texts
from phonograd.simulation.workers import Workers
from tests.support.artifacts import exported, words
from tests.support.command_line import Run
from tests.support.margins import Margin

V = 200
MODEL = phonograd.LanguageModelConfig("lstm", vocabulary=V, embedding=24, hidden=24, layers=1)
ARTIFACTS = exported(MODEL, phonograd.TrainingConfig(minibatch=2, bptt=5))
USERS = {f"user-{user}": [f"w{(user + line) % 31} w{user} w{line % 29}" for line in range(40)] for user in range(4)}
CANARIES = phonograd.AuditSettings(canaries=40, guess_in=12, guess_out=12, words=4)
SIMULATION = phonograd.SimulationSettings(rounds=2, clients_per_round=44, text_bytes=100, test_users=0, epochs=10)
PRIVATE = phonograd.StrategySettings("dp-fedavg", sampling=1.0, noise_multiplier=2.0, clip_norm=1.0, delta=1e-5)


def by_hand(coins: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """The theorem, sum by sum."""
    q = math.exp(epsilon) / (1 + math.exp(epsilon))

    def between(low: int, high: int) -> float:
        places = range(max(0, low), high)
        return sum(math.comb(guesses, k) * q**k * (1 - q) ** (guesses - k) for k in places)

    worst = max(between(right - i, right) / i for i in range(1, coins + 1))
    return min(1.0, between(right, guesses + 1) + 2 * coins * delta * worst)


@pytest.mark.parametrize(
    ("coins", "guesses", "right"), [(1, 1, 1), (5, 3, 2), (9, 9, 0), (12, 8, 8), (60, 30, 22), (200, 12, 10)]
)
def test_the_chance_of_right_guesses_is_the_theorems(coins: int, guesses: int, right: int) -> None:
    for epsilon, delta in ((0.0, 0.01), (0.3, 0), (1.0, 1e-5), (4.0, 1e-3)):
        found = chance_of_right(coins, guesses, right, epsilon, delta)
        assert found == pytest.approx(by_hand(coins, guesses, right, epsilon, delta), rel=1e-9)


@pytest.mark.parametrize("guesses", [1, 20, 1000])
def test_without_delta_it_is_a_binomial_tail(guesses: int) -> None:
    for epsilon in (0.0, 0.5, 3.0, 20.0):
        q = 1 / (1 + math.exp(-epsilon))
        for right in range(0, guesses + 1, max(1, guesses // 10)):
            tail = binom.sf(right - 1, guesses, q)
            assert chance_of_right(2000, guesses, right, epsilon, 0) == pytest.approx(tail, rel=1e-6, abs=1e-12)


def test_all_right_by_hand() -> None:
    """q^20 = 0.05: epsilon = log q / (1 - q). One guess is no evidence: its chance is 1/2."""
    q = 0.05 ** (1 / 20)
    assert epsilon_at_least(20, 20, 20, 0, 0.95) == pytest.approx(math.log(q / (1 - q)), abs=1e-6)
    assert epsilon_at_least(1, 1, 1, 0, 0.95) == 0


def test_the_papers_own_values() -> None:
    """Appendix D and section 7, cut to three places."""
    assert epsilon_at_least(1000, 100, 75, 1e-4, 0.95) == pytest.approx(0.673, abs=1e-3)
    assert epsilon_at_least(100_000, 1510, 1439, 1e-5, 0.95) == pytest.approx(2.675, abs=1e-3)


def test_what_makes_the_bound_larger_and_smaller() -> None:
    bounds = [epsilon_at_least(100, 50, right, 1e-5, 0.95) for right in range(51)]
    assert set(bounds[:31]) == {0}  # 31 of 50 have a chance of 0.059, 32 of 0.032
    above = bounds[31:]
    assert all(more > less for less, more in pairwise(above))
    usual = epsilon_at_least(100, 50, 45, 1e-4, 0.95)
    assert epsilon_at_least(100, 50, 45, 1e-4, 0.99) < usual - 0.2
    assert epsilon_at_least(100, 50, 45, 1e-3, 0.95) < usual - 0.05
    assert epsilon_at_least(1000, 50, 45, 1e-4, 0.95) < usual - 0.05


@pytest.mark.parametrize("epsilon", [0.0, 0.7, 2.0])
def test_the_bound_is_too_large_as_seldom_as_it_says(epsilon: float) -> None:
    """Randomized response is epsilon-private, and no mechanism lets more coins be guessed."""
    q = 1 / (1 + math.exp(-epsilon))
    for guesses, confidence in ((60, 0.95), (100, 0.9), (200, 0.99)):
        wrong = sum(
            binom.pmf(right, guesses, q)
            for right in range(guesses + 1)
            if epsilon_at_least(guesses, guesses, right, 0, confidence) > epsilon
        )
        assert 0.2 * (1 - confidence) < wrong <= 1 - confidence


@pytest.mark.parametrize("given", [(9, 10, 5, 0, 0.9), (9, 5, 6, 0, 0.9), (9, 5, 5, 1, 0.9), (9, 5, 5, 0, 1.0)])
def test_a_bound_of_what_cannot_be(given: tuple[int, int, int, float, float]) -> None:
    with pytest.raises(ValueError, match="expected, found"):
        epsilon_at_least(*given)


def test_the_coins_are_fair_and_of_the_seed() -> None:
    assert coins_of(100, 1) == coins_of(100, 1) != coins_of(100, 2)
    assert abs(sum(coins_of(10_000, 3)) - 5000) < 250  # five standard deviations


def test_a_canary_repeats_words_of_its_own() -> None:
    messages = messages_of(CANARIES, words(V), 1)
    assert len(set(messages)) == 40
    assert {message.count(b" ") for message in messages} == {3}
    assert messages != messages_of(CANARIES, words(V), 2)
    assert messages_of(replace(CANARIES, canaries=24), words(V), 1) == messages[:24]
    assert [len(repeat(b"w1 w2", nbytes, 3)) for nbytes in (1, 18, 19)] == [3, 3, 4]
    with pytest.raises(phonograd.UsageError, match="a word or more expected, found none"):
        messages_of(CANARIES, words(2), 1)


def test_right_guesses_by_hand() -> None:
    scores = np.array([0.5, -1.0, 3.0, 2.0, 0.1, 0.2])
    took_part = [True, False, True, False, True, False]

    def right(highest: int, lowest: int) -> int:
        settings = phonograd.AuditSettings(canaries=6, guess_in=highest, guess_out=lowest)
        return right_guesses(scores, took_part, settings)

    found = {guesses: right(*guesses) for guesses in ((1, 0), (2, 0), (3, 0), (0, 1), (0, 2), (0, 3), (2, 2), (3, 3))}
    assert found == {(1, 0): 1, (2, 0): 1, (3, 0): 2, (0, 1): 1, (0, 2): 1, (0, 3): 2, (2, 2): 2, (3, 3): 4}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"guess_in": 0, "guess_out": 0}, "`guess_in` and `guess_out` are 0 and 0, expected at least 1"),
        ({"guess_in": 30}, r"at most `canaries` \(40\)"),
    ],
)
def test_settings_out_of_range(setting: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(CANARIES, **setting)


@pytest.mark.long
@pytest.mark.learns
def test_a_training_without_noise_is_found_out(
    tmp_path: Path, margin: Margin, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation = replace(SIMULATION, rounds=3, seed=seed)
    settings = replace(CANARIES, at_delta=1e-4, confidence=0.9)
    found = phonograd.simulate_audit(ARTIFACTS, USERS, tmp_path / "run", simulation, settings, workers=1)
    margin("epsilon at least", found.epsilon_at_least, low=0.3)
    assert (found.canaries, found.guesses, found.epsilon) == (40, 24, None)
    assert found.epsilon_at_least == epsilon_at_least(40, 24, found.right, 1e-4, 0.9)
    assert found.took_part == sum(coins_of(40, seed))
    record = read_record(tmp_path / "run")
    assert record.users.training == 44  # all are enrolled
    assert [ended.phones for ended in record.rounds] == [4 + found.took_part] * 3

    def train(*_: object) -> None:
        raise AssertionError("rounds that are on record are not simulated again")

    monkeypatch.setattr(Workers, "train", train)
    assert phonograd.simulate_audit(ARTIFACTS, USERS, tmp_path / "run", simulation, settings, workers=2) == found
    fewer = replace(settings, canaries=39)
    with pytest.raises(StateError, match="holds a simulation with"):
        phonograd.simulate_audit(ARTIFACTS, USERS, tmp_path / "run", simulation, fewer, workers=1)


def test_much_noise_keeps_the_bound_below_what_is_accounted(tmp_path: Path) -> None:
    simulation = replace(SIMULATION, strategy=PRIVATE)
    found = phonograd.simulate_audit(ARTIFACTS, USERS, tmp_path / "run", simulation, CANARIES, workers=1)
    assert found.delta == 1e-5
    assert found.epsilon is not None
    assert found.epsilon_at_least == epsilon_at_least(40, 24, found.right, 1e-5, 0.95)
    assert found.epsilon_at_least < found.epsilon - 1
    assert 2 < found.epsilon < 4


def test_who_is_left_out_is_enrolled_and_cannot_change(tmp_path: Path) -> None:
    texts = Texts({user: [message.encode() for message in told] for user, told in USERS.items()}, [], [])
    short = replace(SIMULATION, rounds=1, epochs=1)
    with Simulation(ARTIFACTS, texts, short, tmp_path / "run", 1, absent=frozenset(["user-1"])) as rounds:
        record = rounds.run()
    assert (record.users.training, record.rounds[0].phones) == (4, 3)
    with pytest.raises(StateError, match="holds a simulation with absent"):
        Simulation(ARTIFACTS, texts, short, tmp_path / "run", 1)


def test_who_would_spoil_the_bound_is_refused(tmp_path: Path) -> None:
    def audit(users: dict[str, list[str]], settings: phonograd.AuditSettings = CANARIES, **given: object) -> None:
        simulation = replace(SIMULATION, **given)
        phonograd.simulate_audit(ARTIFACTS, users, tmp_path / "run", simulation, settings, workers=1)

    with pytest.raises(phonograd.UsageError, match=r"`at_delta` is 0.001, expected `delta` \(1e-05\)"):
        audit(USERS, replace(CANARIES, at_delta=1e-3), strategy=PRIVATE)
    with pytest.raises(phonograd.UsageError, match="no user canary-3 expected"):
        audit({**USERS, "canary-3": ["w1"]})
    equal = phonograd.StrategySettings(weighting="equal")
    with pytest.raises(phonograd.UsageError, match="rounds that are not masked expected"):
        audit(USERS, strategy=equal, masked=MaskedSettings(cohort=50))
    assert not (tmp_path / "run").exists()


def test_the_command(tmp_path: Path, phono: Run) -> None:
    lines = [json.dumps({"user": user, "text": text}) for user, messages in USERS.items() for text in messages]
    (tmp_path / "users.jsonl").write_text("\n".join(lines))
    options = [ARTIFACTS.folder, "--users", tmp_path / "users.jsonl", "--rounds", 1]
    study = tmp_path / "study.toml"
    study.write_text("""
        [training]
        text_bytes = 100
        [evaluation]
        test_users = 3  # an audit has none
        [audit]
        canaries = 8
        guess_in = 3
        guess_out = 2
        confidence = 0.9
    """)
    options += ["--workers", 1, "--config", study]
    later = ("--set", "audit.at_delta=0.001")
    plain = ["privacy", "audit", *options, "--clients-per-round", 12, *later, "--out", tmp_path / "plain"]
    document = phono(*plain, "--json").document
    found = [document[name] for name in ("canaries", "guesses", "delta", "confidence", "epsilon")]
    assert found == [8, 5, 0.001, 0.9, None]
    assert 0 <= document["right"] <= 5
    shown = phono(*plain).out
    assert all(part in shown for part in ("Audit of 1 rounds", "right", "epsilon, at least", "none: no noise"))
    noisy = ["--strategy", "dp-fedavg", "--set", "strategy.sampling=1", "--set", "strategy.delta=1e-5"]
    noisy += ["--out", tmp_path / "noisy"]
    private = phono("privacy", "audit", *options, *noisy, "--json").document
    assert (private["delta"], private["neighbours"]) == (1e-5, "add or remove one user's whole text")
    assert private["neighbours"] in shown
    assert private["epsilon"] > private["epsilon_at_least"]
    other = phono("privacy", "audit", *options, *noisy, *later)
    message = "audit.at_delta is 0.001, expected strategy.dp-fedavg.delta (1e-05)"
    assert (other.code, message in other.err) == (2, True)
    many = phono(*plain, "--set", "audit.guess_in=9")
    assert (many.code, "audit.guess_in and audit.guess_out are 9 and 2" in many.err) == (2, True)
