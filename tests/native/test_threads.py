"""The weights do not depend on the number of threads, to the bit; between kernel sets they differ by rounding only."""

from collections.abc import Mapping

import numpy as np
import pytest

from phonograd.device_runtime.engine.backend import BackendOptions, Precision
from phonograd.device_runtime.engine.c_abi import load_library
from phonograd.device_runtime.engine.native import NativeBackend
from phonograd.device_runtime.formats.manifest import Artifacts, TrainingConfig
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import Array
from phonograd.device_runtime.text.windows import IGNORED, Window
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
    backend = NativeBackend.load(artifacts, None, options)
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


@pytest.mark.parametrize("name", ["lstm-clipped", "lstm-tied-projected", "gru-tied-lwf"])
def test_weights_in_bf16_are_the_same_bits_on_any_number_of_threads(folders: dict[str, Artifacts], name: str) -> None:
    _, weights = trained(folders[name], 1, KERNELS[0], "bf16-emulated")
    for threads in (2, 3, 8):
        _, other = trained(folders[name], threads, KERNELS[0], "bf16-emulated")
        for tensor, expected in weights.items():
            assert other[tensor].tobytes() == expected.tobytes(), (tensor, threads)


@pytest.mark.parametrize("name", MODELS)
def test_kernel_sets_agree_but_for_rounding(folders: dict[str, Artifacts], name: str) -> None:
    assert KERNELS[-1] == "portable"
    before = NativeBackend.load(folders[name], None, BackendOptions()).weights()
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
        NativeBackend.load(folders["lstm-dropout"], None, BackendOptions(seed=seed)).step(windows()[0], 0.1)
        for seed in (9, 10)
    )
    assert first != other
