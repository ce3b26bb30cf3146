"""One step with the gradient of a whole text (FedSGD): each backend against PyTorch's autograd."""

import dataclasses
import math
from pathlib import Path

import msgspec
import numpy as np
import pytest

from phonograd.device_runtime.base.errors import TrainingError
from phonograd.device_runtime.engine.backend import Backend, BackendOptions
from phonograd.device_runtime.formats.tensor_file import load_tensors
from phonograd.device_runtime.text.output_sample import OutputSample
from phonograd.device_runtime.text.windows import Window
from tests.golden.cases import CASES, LEARNING_RATE, Case
from tests.golden.make_golden import FOLDER
from tests.golden.test_parity import BACKENDS, TOLERANCE, load_case, part, relative_error
from tests.golden.torch_reference import TorchTrainer, windows_of

WINDOWS = 6


def clipped(case: Case, clip_norm: float | None) -> Case:
    return dataclasses.replace(case, training=msgspec.structs.replace(case.training, clip_norm=clip_norm))


def full_batch(backend: Backend, windows: list[Window], rate: float = LEARNING_RATE) -> list[float]:
    losses = [backend.step(window, rate / len(windows)) for window in windows]
    backend.finish_full_batch(rate)
    return losses


def few_words(windows: list[Window]) -> list[Window]:
    """The windows with even words alone, so that an output sample leaves words out."""
    return [
        Window(window.tokens // 2 * 2, np.where(window.targets < 0, -1, window.targets // 2 * 2)) for window in windows
    ]


def sample_of(case: Case) -> OutputSample:
    """The even words, and a few others."""
    ids = np.union1d(np.arange(0, case.model.vocabulary, 2), [1, 7])
    return OutputSample(ids, np.random.default_rng(4).exponential(size=len(ids)).astype(np.float32))


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("engine", BACKENDS)
@pytest.mark.parametrize("clip_norm", [None, 0.05])
@pytest.mark.parametrize("name", CASES)
def test_the_mean_gradient_of_all_windows_makes_one_step(
    tmp_path: Path, name: str, clip_norm: float | None, engine: str, sampled: bool
) -> None:
    case, file = clipped(CASES[name], clip_norm), load_tensors(FOLDER / f"{name}.safetensors")
    first, windows = part(file, "first."), few_words(windows_of(case, WINDOWS))
    sample = sample_of(case) if sampled else None
    reference = TorchTrainer(case, first, sample)
    expected = reference.full_batch(windows, LEARNING_RATE)
    backend = load_case(tmp_path, case, file, engine, BackendOptions(sample=sample, full_batch=True))
    np.testing.assert_allclose(full_batch(backend, windows), expected, rtol=TOLERANCE)
    weights = backend.weights()
    moved = math.sqrt(sum(float(np.sum((weights[tensor] - first[tensor]) ** 2)) for tensor in first))
    for tensor, after in reference.model.weights().items():
        assert relative_error(weights[tensor], after) <= TOLERANCE, tensor
        # The step itself, to what float32 weights can hold of it.
        slack = 1e-3 * np.abs(after - first[tensor]).max() + 4 * np.finfo(np.float32).eps * np.abs(after).max()
        np.testing.assert_allclose(weights[tensor] - first[tensor], after - first[tensor], rtol=0, atol=slack)
    if clip_norm is not None:
        assert moved == pytest.approx(LEARNING_RATE * clip_norm, rel=1e-4)
    backend.close()


@pytest.mark.parametrize("engine", BACKENDS)
def test_evaluation_sees_the_step(tmp_path: Path, engine: str) -> None:
    case, file = CASES["lstm"], load_tensors(FOLDER / "lstm.safetensors")
    backend = load_case(tmp_path, case, file, engine, BackendOptions(full_batch=True))
    tokens = windows_of(case, 1)[0].tokens
    before = backend.logits(tokens).copy()
    full_batch(backend, windows_of(case, WINDOWS))
    backend.reset()
    assert np.abs(backend.logits(tokens) - before).max() > 1e-3


def test_a_gradient_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    case, file = clipped(CASES["lstm"], 1.0), load_tensors(FOLDER / "lstm.safetensors")
    backend = load_case(tmp_path, case, file, "native", BackendOptions(full_batch=True))
    with pytest.raises(TrainingError, match="the gradient's norm is not finite; lower the learning rate"):
        full_batch(backend, windows_of(case, 2), 1e38)
