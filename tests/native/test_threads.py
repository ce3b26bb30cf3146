"""The weights do not depend on the number of threads, to the bit; between kernel sets they differ by rounding only."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from phonograd.device_runtime.engine.backend import IGNORED, BackendOptions, Precision, Window
from phonograd.device_runtime.engine.c_abi import load_library
from phonograd.device_runtime.engine.native import NativeBackend
from phonograd.device_runtime.formats.manifest import Artifacts, TrainingConfig
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import Array, load_tensors, save_tensors
from tests.support.artifacts import exported

# Sizes that are no whole number of row blocks (24, 96), panels or vectors, with several of each: N = 35 tokens.
V, E, H, T, B = 300, 24, 40, 7, 5
STEPS, LEARNING_RATE = 6, 0.5


def _training(**changes: object) -> TrainingConfig:
    return TrainingConfig(minibatch=B, bptt=T, learning_rate=LEARNING_RATE, **changes)  # type: ignore[arg-type]


MODELS: Mapping[str, tuple[LanguageModelConfig, TrainingConfig]] = {
    "lstm-clipped": (LanguageModelConfig("lstm", V, E, H, 2), _training(clip_norm=0.05)),
    "lstm-dropout": (LanguageModelConfig("lstm", V, E, H, 2), _training(clip_norm=None, dropout=0.3)),
    "gru": (LanguageModelConfig("gru", V, E, H, 1), _training(clip_norm=None)),
    "lstm-tied-projected": (LanguageModelConfig("lstm", V, E, H, 1, tied=True), _training(clip_norm=0.05)),
    "gru-tied-lwf": (LanguageModelConfig("gru", V, H, H, 1, tied=True), _training(loss="lwf")),
}
KERNELS = load_library().cpu_info()["kernels"]
BF16: list[Precision] = ["bf16-emulated"]
if load_library().cpu_info()["bf16"]:
    BF16.append("bf16")


@pytest.fixture(scope="module")
def folders() -> dict[str, Artifacts]:
    return {name: exported(model, training, seed=3, spread=10) for name, (model, training) in MODELS.items()}


def windows() -> list[Window]:
    random = np.random.default_rng(5)
    made = [Window(*(random.integers(0, V, (T, B)) for _ in range(2))) for _ in range(STEPS)]
    made[2].tokens[:, 1] = made[2].tokens[0, 0]  # rows of the embedding that several tokens move
    made[-1].targets[3:, 2:] = IGNORED
    return made


def trained(
    artifacts: Artifacts, threads: int, kernels: str, precision: Precision = "fp32"
) -> tuple[list[float], dict[str, Array]]:
    options = BackendOptions(threads=threads, seed=9, kernels=kernels, precision=precision)
    backend = NativeBackend(artifacts, None, options)
    losses = [backend.step(window, LEARNING_RATE) for window in windows()]
    weights = backend.weights()
    backend.close()
    return losses, weights


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("name", MODELS)
def test_weights_are_the_same_bits_on_any_number_of_threads(
    folders: dict[str, Artifacts], name: str, kernels: str
) -> None:
    losses, weights = trained(folders[name], 1, kernels)
    assert np.isfinite(losses).all()
    # Threads share the work alike whatever the kernels: those that are not chosen here take an odd number only.
    for threads in (2, 3, 4, 8) if kernels == KERNELS[0] else (3,):
        other_losses, other = trained(folders[name], threads, kernels)
        assert other_losses == losses, threads
        for tensor, expected in weights.items():
            assert other[tensor].tobytes() == expected.tobytes(), (tensor, threads)


@pytest.mark.parametrize("precision", BF16)
@pytest.mark.parametrize("name", ["lstm-clipped", "gru", "lstm-tied-projected", "gru-tied-lwf"])
def test_weights_in_bf16_are_the_same_bits_on_any_number_of_threads(
    folders: dict[str, Artifacts], name: str, precision: Precision
) -> None:
    _, weights = trained(folders[name], 1, KERNELS[0], precision)
    for threads in (2, 3, 4, 8):
        _, other = trained(folders[name], threads, KERNELS[0], precision)
        for tensor, expected in weights.items():
            assert other[tensor].tobytes() == expected.tobytes(), (tensor, threads)


def rounded_to_bf16(array: Array) -> Array:
    bits = array.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


@pytest.mark.parametrize("precision", ["fp32", *BF16])
@pytest.mark.parametrize("name", ["lstm-dropout", "gru"])
def test_a_sweep_in_bf16_rounds_the_recurrent_weights(
    folders: dict[str, Artifacts], tmp_path: Path, name: str, precision: Precision
) -> None:
    """Rounding them beforehand then changes no bit of what a step moves elsewhere, forward and backward."""
    weights = load_tensors(folders[name].folder / "weights.safetensors")
    recurrent = [tensor for tensor in weights if tensor.endswith(".R")]
    save_tensors(tmp_path / "rounded", {**weights, **{R: rounded_to_bf16(weights[R]) for R in recurrent}})
    moved = []
    for path in (None, tmp_path / "rounded"):
        options = BackendOptions(threads=2, seed=9, kernels=KERNELS[0], precision=precision)
        backend = NativeBackend(folders[name], path, options)
        backend.step(windows()[0], LEARNING_RATE)
        moved.append(backend.weights())
        backend.close()
    others = [tensor for tensor in weights if tensor not in recurrent]
    assert recurrent and others
    for tensor in others:
        same = moved[0][tensor].tobytes() == moved[1][tensor].tobytes()
        assert same == (precision != "fp32"), tensor


@pytest.mark.parametrize("name", MODELS)
def test_kernel_sets_agree_but_for_rounding(folders: dict[str, Artifacts], name: str) -> None:
    assert KERNELS[-1] == "portable"
    before = NativeBackend(folders[name], None, BackendOptions()).weights()
    expected_losses, expected = trained(folders[name], 2, "portable")
    for kernels in KERNELS[:-1]:
        losses, weights = trained(folders[name], 2, kernels)
        np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
        for tensor, values in expected.items():
            # Of what training moved, not only of the weight: a wrong gradient can't hide behind a large first weight.
            moved = np.linalg.norm(values - before[tensor])
            assert moved > 0, tensor
            assert np.linalg.norm(weights[tensor] - values) <= 1e-5 * np.linalg.norm(values), (tensor, kernels)
            assert np.linalg.norm(weights[tensor] - values) <= 1e-3 * moved, (tensor, kernels)


@pytest.mark.parametrize("name", MODELS)
def test_fused_nodes_agree_with_single_ones(folders: dict[str, Artifacts], name: str) -> None:
    fused, single = (
        NativeBackend(folders[name], None, BackendOptions(threads=2, seed=9), fuse) for fuse in (True, False)
    )
    for window in windows():
        assert fused.step(window, LEARNING_RATE) == pytest.approx(single.step(window, LEARNING_RATE), rel=1e-5)
    others = single.weights()
    for tensor, values in fused.weights().items():
        assert np.linalg.norm(others[tensor] - values) <= 1e-5 * np.linalg.norm(values), tensor


def test_weights_depend_on_the_seed_of_the_masks(folders: dict[str, Artifacts]) -> None:
    first, other = (
        NativeBackend(folders["lstm-dropout"], None, BackendOptions(seed=seed)).step(windows()[0], 0.1)
        for seed in (9, 10)
    )
    assert first != other
