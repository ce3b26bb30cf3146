"""Noise that phones add together: what it is worth, and what the ledger says that rounds have cost."""

import math
import random
from pathlib import Path

import pytest

from phonograd.device_runtime.formats.tensor_file import TensorFile
from phonograd.server_agg.aggregation.privacy.accountant import (
    PrivateRounds,
    epsilon_upper_bound,
    privacy_spent,
)
from phonograd.server_agg.aggregation.settings import StrategySettings
from phonograd.server_agg.report.document import read_report
from phonograd.server_agg.report.text import epsilon_text
from phonograd.server_agg.security.registry import PhoneRegistry
from phonograd.server_agg.settings.masked import MaskedSettings, effective_noise
from phonograd.server_agg.settings.rules import RoundRules
from phonograd.server_agg.settings.server import ServerSettings
from phonograd.server_agg.storage import cohorts
from tests.server_agg.masked_fleet import Fleet, masked_settings
from tests.server_agg.masked_rounds import a_round, open_masked
from tests.server_agg.private_runs import end_round
from tests.server_agg.workshop import Clock, Workshop, settings_with


def test_wide_noise_is_worth_what_a_gaussian_is() -> None:
    assert effective_noise(25, 100.0, 500.0, 10**6) == pytest.approx(math.sqrt(25) * 100 / 500)


def test_narrow_noise_is_worth_less_and_none_nothing() -> None:
    """A sum of discrete Gaussians is far from one if they are narrow: the paper's tau, in each dimension."""
    narrow = effective_noise(25, 0.5, 2.5, 10**4)
    tau = 10 * sum(math.exp(-2 * math.pi**2 * 0.25 * k / (k + 1)) for k in range(1, 25))
    assert narrow == pytest.approx(1 / min(math.sqrt(1 + tau * 5000), 1 + tau * 100))
    assert narrow < 0.02
    assert effective_noise(25, 0.0, 2.5, 10**4) == effective_noise(0, 1.0, 2.5, 10**4) == 0


def test_the_least_cohort_has_the_noise_that_was_asked_for(workshop: Workshop) -> None:
    settings = MaskedSettings(cohort=100, min_cohort=50, distributed_noise=0.8)
    with TensorFile(workshop.base_path) as model:
        about = settings.about(model)
    least = settings.effective_noise(about, 50, about.honest + 5)  # 5 of 50 are curious
    assert least == pytest.approx(0.8, rel=1e-6)
    assert settings.effective_noise(about, 100, 100) > least  # more phones add more
    assert settings.effective_noise(about, 50, 20) < least


def test_the_ledger_has_the_epsilon_of_all_rounds(workshop: Workshop, state: Path) -> None:
    server, clock = masked_settings(4, 3, {"distributed_noise": 0.7, "dropouts": 0.4}), Clock()
    with open_masked(workshop, state, server, clock=clock) as coordinator:
        spent = []
        for number, lost in enumerate(({}, {"phone0": "upload"}), 1):
            fleet = Fleet(coordinator, workshop, 4, seed=number)
            fleet.run(lost, random.Random(1), clock)
            spent.append(a_round(coordinator.ledger, number).epsilon)
    assert server.masked is not None
    with TensorFile(workshop.base_path) as model:
        about = server.masked.about(model)
    noise = [server.masked.effective_noise(about, 4, alive) for alive in (4, 3)]
    rounds = [PrivateRounds(1.0, one) for one in noise]
    assert spent == pytest.approx([epsilon_upper_bound(rounds[:count], server.strategy.delta) for count in (1, 2)])
    assert noise[0] > noise[1]


def test_noise_of_phones_and_of_the_server_add_up(workshop: Workshop, state: Path) -> None:
    """The order does not count, in each round's epsilon and in the budget."""
    by_phones, clock = masked_settings(3, masked={"distributed_noise": 2.0}), Clock()
    dp = {
        "strategy": "dp-fedavg",
        "sampling": 0.5,
        "noise_multiplier": 0.2,
        "deadline_seconds": 100.0,
        "end_privacy": True,
    }
    once = PrivateRounds(0.5, 0.2)
    with open_masked(workshop, state, by_phones, clock) as coordinator:
        Fleet(coordinator, workshop, 3).run({}, random.Random(1), clock)
        PhoneRegistry(coordinator.ledger).add("one", "phone", "90d", "test")
    with open_masked(workshop, state, settings_with(**dp), clock) as coordinator:
        end_round(coordinator, clock)
    with open_masked(workshop, state, by_phones, clock) as coordinator:
        Fleet(coordinator, workshop, 3).run({}, random.Random(1), clock)
        ended = [a_round(coordinator.ledger, number) for number in (1, 2, 3)]
        with coordinator.ledger.reading() as session:
            noise = [PrivateRounds(1.0, one, rdp_only=True) for one in cohorts.noise_of_rounds(session)]
    spent = [privacy_spent(rounds, 1e-9) for rounds in (noise[:1], [noise[0], once], [*noise, once])]
    assert [row.epsilon for row in ended] == pytest.approx([one.epsilon for one in spent])
    alone = privacy_spent([once, once], 1e-9).epsilon
    with open_masked(workshop, state, settings_with(**dp, epsilon_budget=alone), clock) as coordinator:
        assert "would exceed the privacy budget" in str(coordinator.current.halted)
    rounds = read_report(state)["rounds"][:3]
    assert [epsilon_text(entry) for entry in rounds] == [f"{one.epsilon:.4g}" for one in spent]


def test_a_round_without_noise_has_no_epsilon(workshop: Workshop, state: Path) -> None:
    clock = Clock()
    with open_masked(workshop, state, clock=clock) as coordinator:
        Fleet(coordinator, workshop, 3).run({}, random.Random(1), clock)
        assert a_round(coordinator.ledger).epsilon is None


def test_noise_of_phones_and_of_the_server_exclude_each_other() -> None:
    strategy = StrategySettings(strategy="dp-fedavg", clip_norm=15.0, sampling=0.1, weighting="equal")
    with pytest.raises(ValueError, match="`distributed_noise` is 1, expected 0 for dp-fedavg"):
        ServerSettings(
            rules=RoundRules(clients_per_round=100, deadline_seconds=60.0),
            strategy=strategy,
            masked=MaskedSettings(distributed_noise=1.0),
        )
