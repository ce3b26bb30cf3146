"""Masked rounds, simulated: the models of plain rounds but for the grid; bytes, noise, refusals."""

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

import phonograd
from phonograd.device_runtime.formats.manifest import WEIGHTS
from phonograd.device_runtime.formats.tensor_file import load_tensors
from phonograd.server_agg.aggregation.settings import StrategySettings
from phonograd.server_agg.settings.masked import MaskedSettings
from tests.simulation.test_published import ARTIFACTS, SETTINGS, run

EQUAL = StrategySettings(weighting="equal")
PLAIN = replace(SETTINGS, rounds=2, evaluate_every=2, strategy=EQUAL)
GRID = MaskedSettings(cohort=4, min_cohort=4, bits=16, clip=20.0)
MASKED = replace(PLAIN, masked=GRID)


def delta_of(folder: Path, number: int) -> dict[str, np.ndarray]:
    """What the rounds up to `number` changed."""
    before, after = load_tensors(ARTIFACTS.path(WEIGHTS)), load_tensors(folder / f"models/{number}.safetensors")
    return {name: after[name] - before[name] for name in before}


def test_a_masked_round_makes_the_plain_model_within_the_grid(tmp_path: Path) -> None:
    for name, settings in (("plain", PLAIN), ("masked", MASKED)):
        run(tmp_path / name, replace(settings, rounds=1, evaluate_every=1))
    plain, masked = (delta_of(tmp_path / name, 1) for name in ("plain", "masked"))
    moved = np.concatenate([plain[name].ravel() for name in plain])
    apart = np.concatenate([(masked[name] - plain[name]).ravel() for name in plain])
    assert 0 < np.linalg.norm(apart) < 0.01 * np.linalg.norm(moved)


def test_bytes_are_those_of_masked_updates(tmp_path: Path) -> None:
    """Two bytes and a bit for each of 16 bits' sums of four, of blocks of 4096."""
    record = run(tmp_path / "masked", replace(MASKED, rounds=1, evaluate_every=1))
    parameters = sum(tensor.size for tensor in load_tensors(ARTIFACTS.path(WEIGHTS)).values())
    values = -(-parameters // 4096) * 4096 + 1
    assert record.rounds[0].bytes_up == 4 * (-(-values * 18 // 8))


def test_noise_of_phones_costs_epsilon_and_accuracy(tmp_path: Path) -> None:
    noisy = replace(MASKED, masked=replace(GRID, bits=8, clip=1.0, distributed_noise=2.0))
    record = run(tmp_path / "noisy", noisy)
    assert record.rounds[-1].epsilon is not None and 1 < record.rounds[-1].epsilon < 20
    assert run(tmp_path / "masked", MASKED).rounds[-1].epsilon is None
    assert np.linalg.norm(delta_of(tmp_path / "noisy", 2)["embedding.weight"]) > 0


@pytest.mark.parametrize(
    "change, message",
    [
        ({"strategy": StrategySettings(weighting="tokens")}, "`weighting` is 'tokens', expected equal"),
        ({"deploy_every": 2}, "`deploy_every` is 2, expected 1 with `masked`"),
        ({"clients_per_round": 5}, "`clients_per_round` is 5, expected at most `cohort`"),
        ({"late_phones": 0.1, "late": "next"}, "`late` 'next'"),
    ],
)
def test_what_no_masked_round_can_have_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(MASKED, **change)  # type: ignore[arg-type]


def test_other_masks_are_another_simulation(tmp_path: Path) -> None:
    run(tmp_path, replace(MASKED, rounds=1))
    with pytest.raises(phonograd.StateError, match="masked"):
        run(tmp_path, replace(MASKED, masked=replace(GRID, bits=8)))
