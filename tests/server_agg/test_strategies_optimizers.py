"""The model's file and the server optimisers, over several rounds, against NumPy."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from phonograd.device_runtime.base.errors import StorageError, WeightsError
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, load_tensors, save_tensors
from phonograd.server_agg.aggregation.model_writer import write_model
from phonograd.server_agg.aggregation.settings import StrategySettings
from tests.server_agg.rounds_of_updates import Round, random_weights, trained
from tests.server_agg.trained_weights import TrainedWeights

LR, BETA, BETA1, BETA2, TAU = 0.5, 0.8, 0.9, 0.95, 1e-2
NONE = StrategySettings(server_lr=LR)
MOMENTUM = StrategySettings(server_optimizer="momentum", server_lr=LR, momentum=BETA)
ADAM = StrategySettings(server_optimizer="adam", server_lr=LR, beta1=BETA1, beta2=BETA2, adam_epsilon=TAU)


def no_step(delta: Array, memory: dict[str, Array]) -> Array:
    return LR * delta


def momentum_step(delta: Array, memory: dict[str, Array]) -> Array:
    memory["m"] = BETA * memory.get("m", 0) + delta
    return LR * memory["m"]


def adam_step(delta: Array, memory: dict[str, Array]) -> Array:
    """Reddi et al. 2021, Algorithm 2, FedAdam."""
    memory["m"] = BETA1 * memory.get("m", 0) + (1 - BETA1) * delta
    memory["v"] = BETA2 * memory.get("v", np.full(delta.shape, TAU**2)) + (1 - BETA2) * delta**2
    return LR * memory["m"] / (np.sqrt(memory["v"]) + TAU)


def write_round(folder: Path, number: int, settings: StrategySettings, seeds: tuple[int, ...] = (1, 2)) -> None:
    """Round `number` from model-N and state-N, where there is one, to those of N + 1."""
    state = folder / f"state-{number}"
    with TensorFile(folder / f"model-{number}") as base:
        round_ = Round(base, settings)
        for seed in seeds:
            round_.take(TrainedWeights(trained(base, 10 * number + seed)))
        write_model(
            settings,
            round_.aggregation,
            round_.updates,
            base,
            state if state.exists() else None,
            folder / f"model-{number + 1}",
            folder / f"state-{number + 1}",
            {"round": str(number)},
        )


@pytest.mark.parametrize(
    ("settings", "step", "states"), [(NONE, no_step, 0), (MOMENTUM, momentum_step, 1), (ADAM, adam_step, 2)]
)
def test_four_rounds_are_numpys(
    settings: StrategySettings, step: Callable[..., Array], states: int, tmp_path: Path
) -> None:
    save_tensors(tmp_path / "model-0", random_weights(0))
    memory: dict[str, dict[str, Array]] = {name: {} for name in random_weights(0)}
    for number in range(4):
        before = load_tensors(tmp_path / f"model-{number}")
        with TensorFile(tmp_path / f"model-{number}") as base:
            updates = [trained(base, 10 * number + seed) for seed in (1, 2)]
        write_round(tmp_path, number, settings)
        after = load_tensors(tmp_path / f"model-{number + 1}")
        for name, w in before.items():
            delta = (updates[0][name].astype(np.float64) + updates[1][name]) / 2 - w
            expected = w + step(delta, memory[name])
            np.testing.assert_allclose(after[name], expected, rtol=2e-6, atol=2e-7)
    assert (tmp_path / "state-4").exists() == (states > 0)
    if states:
        found = load_tensors(tmp_path / "state-4")
        for name, moments in memory.items():
            for column, kind in enumerate(sorted(moments)):
                np.testing.assert_allclose(found[f"{name}.moments"][..., column], moments[kind], rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("settings", [NONE, MOMENTUM, ADAM], ids=lambda settings: settings.server_optimizer)
def test_untouched_weights_keep_their_bits(settings: StrategySettings, tmp_path: Path) -> None:
    odd = np.array([-0.0, 0.0, 1e-45, -1e-45, 3.4e38, -1.5], np.float32)
    save_tensors(tmp_path / "model-0", {"odd": odd})
    moved = odd.copy()
    moved[-1] = 1.0
    with TensorFile(tmp_path / "model-0") as base:
        round_ = Round(base, settings)
        round_.take(TrainedWeights({"odd": moved}))
        write_model(settings, round_.aggregation, round_.updates, base, None, tmp_path / "m", tmp_path / "s", {})
    after = load_tensors(tmp_path / "m")["odd"]
    assert after[:-1].tobytes() == odd[:-1].tobytes()
    assert after[-1] != odd[-1]


def test_the_files_say_what_they_are(tmp_path: Path) -> None:
    save_tensors(tmp_path / "model-0", random_weights(0))
    write_round(tmp_path, 0, ADAM)
    with TensorFile(tmp_path / "model-1") as model, TensorFile(tmp_path / "state-1") as state:
        assert model.metadata == {"round": "0"}
        assert state.metadata == {
            "format": "phonograd-optimizer-state",
            "version": "1",
            "optimizer": "adam",
            "round": "0",
        }
        assert [str(spec) for spec in state.specs.values()][1] == "kernel.moments F32[1, 8, 5, 2]"


def test_a_state_of_another_optimiser_is_left_out_and_one_of_another_model_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save_tensors(tmp_path / "model-0", random_weights(0))
    write_round(tmp_path, 0, ADAM)
    write_round(tmp_path, 1, MOMENTUM)
    assert "the server optimizer changed from adam to momentum, and starts without" in caplog.text
    after = (tmp_path / "model-2").read_bytes()
    (tmp_path / "state-1").rename(tmp_path / "adam")
    write_round(tmp_path, 1, MOMENTUM)
    assert (tmp_path / "model-2").read_bytes() == after
    (tmp_path / "adam").rename(tmp_path / "state-1")
    save_tensors(tmp_path / "model-1", random_weights(0, shapes={"bias": (11,)}))
    with pytest.raises(WeightsError, match="is not part of the model"):
        write_round(tmp_path, 1, ADAM)


def test_a_round_without_updates_writes_nothing(tmp_path: Path) -> None:
    save_tensors(tmp_path / "model-0", random_weights(0))
    with pytest.raises(ValueError, match="a round without updates does not change the model"):
        write_round(tmp_path, 0, MOMENTUM, seeds=())
    assert [path.name for path in tmp_path.iterdir()] == ["model-0"]


def test_a_model_that_would_leave_float32_is_not_written(tmp_path: Path) -> None:
    largest = np.full(30, np.finfo(np.float32).max)
    save_tensors(tmp_path / "model-0", {"w": largest})
    wild = structs.replace(NONE, strategy="dp-fedavg", server_lr=1e6, clip_norm=1e6, noise_multiplier=1e6)
    wild = structs.replace(wild, sampling=1e-9, mean_weight=1e-6)
    with (
        TensorFile(tmp_path / "model-0") as base,
        pytest.raises(WeightsError, match="tensor w: the next model would overflow float32"),
    ):
        round_ = Round(base, wild)
        round_.take(TrainedWeights({"w": largest}))
        write_model(wild, round_.aggregation, round_.updates, base, None, tmp_path / "m", tmp_path / "s", {})
    assert [path.name for path in tmp_path.iterdir()] == ["model-0"]


@pytest.mark.parametrize("settings", [NONE, ADAM], ids=lambda settings: settings.server_optimizer)
def test_a_disk_that_refuses_leaves_nothing(settings: StrategySettings, tmp_path: Path) -> None:
    save_tensors(tmp_path / "model-0", random_weights(0))
    (tmp_path / "model-1").mkdir()  # a file cannot be renamed over a folder
    with pytest.raises(StorageError, match="model-1: cannot write"):
        write_round(tmp_path, 0, settings)
    assert {path.name for path in tmp_path.iterdir()} <= {"model-0", "model-1", "state-1"}
