"""The weights do not depend on the number of threads, to the bit; between kernel sets they differ by rounding only.

So they do with an output sample, whose rows are packed.
"""

from pathlib import Path

import numpy as np
import pytest

from phonograd.device_runtime.engine.backend import BackendOptions, Precision
from phonograd.device_runtime.engine.c_abi import load_library
from phonograd.device_runtime.engine.native import NativeBackend
from phonograd.device_runtime.formats.manifest import Artifacts
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import Array, load_tensors, save_tensors
from tests.native.epochs import (
    CLIPPED,
    FULL,
    KERNELS,
    LEARNING_RATE,
    LWF,
    E,
    H,
    V,
    train,
    windows,
)
from tests.support.artifacts import exported

MODELS = {
    **FULL,
    **{f"sampled {name}": case for name, case in FULL.items()},
    "sampled gru without bias": (LanguageModelConfig("gru", V, E, H, 1, output_bias=False), CLIPPED),
    "sampled lstm-lwf": (LanguageModelConfig("lstm", V, E, H, 1), LWF),
}
BF16: list[Precision] = ["bf16-emulated"]
if load_library().cpu_info()["bf16"]:
    BF16.append("bf16")


@pytest.fixture(scope="module")
def folders() -> dict[str, Artifacts]:
    return {name: exported(model, training, seed=3, spread=10) for name, (model, training) in MODELS.items()}


@pytest.mark.parametrize(
    ("name", "kernels"),
    [
        *((name, KERNELS[0]) for name in MODELS if name in FULL or name.endswith(("clipped", "tied-lwf", "bias"))),
        *((name, kernels) for kernels in KERNELS[1:] for name in ("cifg-dropout", "sampled gru-tied-lwf")),
    ],
)
def test_weights_are_the_same_bits_on_any_number_of_threads(
    folders: dict[str, Artifacts], name: str, kernels: str
) -> None:
    losses, weights = train(folders, name, 1, kernels)
    assert np.isfinite(losses).all()
    # Threads share the work alike whatever the kernels: those that are not chosen here take an odd number only.
    for threads in (2, 3, 8) if kernels == KERNELS[0] else (3,):
        other_losses, other = train(folders, name, threads, kernels)
        assert other_losses == losses, threads
        for tensor, expected in weights.items():
            assert other[tensor].tobytes() == expected.tobytes(), (tensor, threads)


@pytest.mark.parametrize("precision", BF16)
@pytest.mark.parametrize("name", ["lstm-clipped", "cifg-tied", "gru-tied-lwf", "sampled lstm-clipped"])
def test_weights_in_bf16_are_the_same_bits_on_any_number_of_threads(
    folders: dict[str, Artifacts], name: str, precision: Precision
) -> None:
    _, weights = train(folders, name, 1, KERNELS[0], precision)
    for threads in (7,):
        _, other = train(folders, name, threads, KERNELS[0], precision)
        for tensor, expected in weights.items():
            assert other[tensor].tobytes() == expected.tobytes(), (tensor, threads)


def rounded_to_bf16(array: Array) -> Array:
    bits = array.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


@pytest.mark.parametrize("precision", ["fp32", *BF16])
@pytest.mark.parametrize("name", ["lstm-dropout", "gru", "cifg-dropout"])
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


ALL_OPERATORS = ("lstm-clipped", "lstm-dropout", "cifg-tied", "gru-tied-lwf", "sampled lstm-tied-projected")


@pytest.mark.parametrize("name", ALL_OPERATORS)
def test_kernel_sets_agree_but_for_rounding(folders: dict[str, Artifacts], name: str) -> None:
    assert KERNELS[-1] == "portable"
    before = NativeBackend(folders[name], None, BackendOptions()).weights()
    expected_losses, expected = train(folders, name, 2, "portable")
    for kernels in KERNELS[:-1]:
        losses, weights = train(folders, name, 2, kernels)
        np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
        for tensor, values in expected.items():
            # Of what training moved, not only of the weight: a wrong gradient can't hide behind a large first weight.
            moved = np.linalg.norm(values - before[tensor])
            assert moved > 0, tensor
            assert np.linalg.norm(weights[tensor] - values) <= 1e-5 * np.linalg.norm(values), (tensor, kernels)
            assert np.linalg.norm(weights[tensor] - values) <= 1e-3 * moved, (tensor, kernels)


@pytest.mark.parametrize("name", [*FULL, "sampled gru without bias", "sampled lstm-lwf", "sampled cifg-tied"])
def test_fused_nodes_agree_with_single_ones(folders: dict[str, Artifacts], name: str) -> None:
    losses, weights = train(folders, name, 2, None)
    single_losses, single = train(folders, name, 2, None, fuse=False)
    np.testing.assert_allclose(losses, single_losses, rtol=1e-5)
    for tensor, values in single.items():
        assert np.linalg.norm(weights[tensor] - values) <= 1e-5 * np.linalg.norm(values), tensor
