"""Noise that is larger than the update that it covers is told before it destroys a model."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest

from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import TensorFile
from phonograd.server_agg.aggregation.settings import StrategySettings
from phonograd.server_agg.settings.masked import MaskedSettings
from phonograd.server_agg.settings.noise import covering_noise
from tests.server_agg.masked_fleet import parameters_of
from tests.server_agg.workshop import Workshop
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
    settings = dataclasses.replace(SAMPLED, **changes)
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


@pytest.mark.parametrize("settings", [StrategySettings(), dataclasses.replace(SAMPLED, noise_multiplier=0.0)])
def test_without_noise_there_is_nothing_to_tell(settings: StrategySettings) -> None:
    assert covering_noise(Path("none"), settings, 1, 1) is None


@pytest.mark.parametrize("command", ["serve", "simulate"])
def test_it_is_told_and_refused(phono: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """Nothing is made of a refused one."""
    monkeypatch.setattr("phonograd.api.serving.serve", lambda *_: None)
    artifacts = exported(LanguageModelConfig("lstm", 40, 8, 8, 1))
    with TensorFile(artifacts.path("weights.safetensors")) as file:
        root = math.sqrt(sum(spec.elements for spec in file.specs.values()))
    state, users = tmp_path / "new", tmp_path / "users.jsonl"
    users.write_text("\n".join(f'{{"user": "u{user}", "text": "{"w1 w2 w3 " * 100}"}}' for user in range(8)))
    lines: dict[str, tuple[Any, ...]] = {
        "serve": (
            "serve",
            "--artifacts",
            artifacts.folder,
            "--state",
            state,
            "--deadline-seconds",
            9,
            "--population",
            8,
        ),
        "simulate": ("simulate", artifacts.folder, "--users", users, "--out", state, "--rounds", 1, "--test-users", 0),
    }

    def call(times: float, *options: str) -> tuple[int, str]:
        """Noise of so many times S, with four phones a round."""
        noise = ("--strategy", "dp-fedavg", "--sampling", 0.5, "--noise-multiplier", times * 4 / root)
        done = phono(*lines[command], *noise, *options)
        return done.code, " ".join(done.err.split())

    code, told = call(11)
    assert (code, state.exists()) == (2, False), told
    assert "11 times S (15), the largest norm of the update that it covers, with 4 phones" in told
    assert "--accept-noise" in told
    code, told = call(11, "--accept-noise")
    assert (code, "warning: the noise of a round has a norm of 165, 11 times" in told) == (0, True), told
    if command == "serve":
        assert "warning: the noise of a round" in call(1.5)[1]
        assert "phonograd: the noise of a round has a norm of 7.5, 0.5 times" in call(0.5)[1]
