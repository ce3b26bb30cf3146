"""Noise that is larger than the update that it covers is told before it destroys a model."""

import math
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from phonograd.device_runtime.base.errors import UsageError
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import TensorFile
from phonograd.server_agg.aggregation.settings import StrategySettings
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.security.registry import PhoneRegistry
from phonograd.server_agg.settings.masked import MaskedSettings
from phonograd.server_agg.settings.noise import covering_noise
from phonograd.server_agg.settings.storage import ServerStorage
from phonograd.server_agg.storage.ledger import ledger_of
from tests.server_agg.masked_fleet import parameters_of
from tests.server_agg.workshop import Workshop, settings_with
from tests.support.artifacts import exported
from tests.support.command_line import Run, phono

__all__ = ["phono"]
SAMPLED = StrategySettings("dp-fedavg", sampling=0.5, clip_norm=2.0)


@pytest.mark.parametrize(
    ("changes", "times"),
    [
        ({}, 1),
        ({"noise_multiplier": 3.0}, 3),
        ({"mean_weight": 0.5}, 2),
        ({"estimator": "clipped", "min_share": 0.5}, 4),
    ],
    ids=str,
)
def test_the_norm_is_that_of_the_noise_which_is_added(
    workshop: Workshop, changes: dict[str, Any], times: float
) -> None:
    settings = structs.replace(SAMPLED, **changes)
    found = covering_noise(workshop.base_path, settings, 40, 7)
    assert found is not None
    once = 2.0 / 20 * math.sqrt(parameters_of(workshop))  # z S / (q N)
    assert (found.norm, found.bound, found.phones) == pytest.approx((times * once, 2.0, 20))


def test_of_correlated_noise_and_of_phones_noise_it_is_more_than_of_independent(workshop: Workshop) -> None:
    root = math.sqrt(parameters_of(workshop))
    run = StrategySettings("dp-ftrl", clip_norm=2.0, planned_rounds=6, min_separation=3, max_participations=2)
    correlated = covering_noise(workshop.base_path, run, 0, 20)
    by_phones = covering_noise(
        workshop.base_path,
        StrategySettings(),
        0,
        20,
        MaskedSettings(cohort=20, min_cohort=20, clip=2.0, distributed_noise=1),
    )
    assert correlated is not None
    assert by_phones is not None
    for found in (correlated, by_phones):
        assert (found.bound, found.phones) == (2.0, 20)
        assert 1 < found.norm / (2.0 / 20 * root) < 4


@pytest.mark.parametrize("settings", [StrategySettings(), structs.replace(SAMPLED, noise_multiplier=0.0)])
def test_without_noise_there_is_nothing_to_tell(settings: StrategySettings) -> None:
    assert covering_noise(Path("none"), settings, 1, 1) is None


def test_a_server_tells_it_and_refuses_what_destroys_the_model(
    workshop: Workshop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The phones that must be enrolled count, or those that are, if they are more."""
    root, state = math.sqrt(parameters_of(workshop)), tmp_path / "state"

    def start(times: float, phones: int, accepted: bool = False) -> list[str]:
        """Noise of so many times S with `phones` expected. Returns what the log has of it."""
        caplog.clear()
        noise = {"strategy": "dp-fedavg", "sampling": 0.5, "clip_norm": 2.0, "population": 8}
        settings = settings_with(
            **noise, noise_multiplier=times * phones / root, deadline_seconds=9.0, accept_noise=accepted
        )
        Coordinator(workshop.artifacts, state, settings).close()
        return [f"{one.levelname}: {one.message}" for one in caplog.records if "noise of a round" in one.message]

    with caplog.at_level("INFO"):
        with pytest.raises(UsageError, match=r"norm of 22, 11 times S \(2\).*4 phones.*give `accept_noise`"):
            start(11, 4)
        assert "WARNING: the noise of a round has a norm of 22" in start(11, 4, accepted=True)[0]
        assert "WARNING: the noise of a round has a norm of 3, 1.5 times" in start(1.5, 4)[0]
        assert "INFO: the noise of a round has a norm of 1, 0.5 times" in start(0.5, 4)[0]
        with ledger_of(ServerStorage(state)) as ledger:
            for phone in range(20):
                PhoneRegistry(ledger).add(f"p{phone}", "phone", "never", "owner")
        assert "with 10 phones expected" in start(9, 10)[0]


@pytest.mark.long  # exports a model
def test_a_simulation_does_too(phono: Run, tmp_path: Path) -> None:
    """Nothing is made of a refused one."""
    artifacts = exported(LanguageModelConfig("lstm", 40, 8, 8, 1))
    with TensorFile(artifacts.path("weights.safetensors")) as file:
        root = math.sqrt(sum(spec.elements for spec in file.specs.values()))
    out, users = tmp_path / "out", tmp_path / "users.jsonl"
    users.write_text("\n".join(f'{{"user": "u{user}", "text": "{"w1 w2 w3 " * 100}"}}' for user in range(8)))
    line = ("simulate", artifacts.folder, "--users", users, "--out", out, "--rounds", 1)
    line += ("--set", "evaluation.test_users=0")
    noise = ("--strategy", "dp-fedavg", "--set", "strategy.sampling=0.5")
    noise += ("--set", f"strategy.noise_multiplier={11 * 4 / root}")
    refused = phono(*line, *noise)
    told = " ".join(refused.err.split())
    assert (refused.code, out.exists()) == (2, False), told
    assert "11 times S (15), the largest norm of the update that it covers, with 4 phones" in told
    assert "--accept-noise" in told
