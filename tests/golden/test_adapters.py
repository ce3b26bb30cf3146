"""Low-rank adapters: every backend is held to PyTorch's gradients of the whole matrices, dB = dW A^T."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from phonograd.device_runtime.engine.backend import BackendOptions, OutputSample, Window
from phonograd.device_runtime.engine.c_abi import load_library
from phonograd.device_runtime.engine.native import NativeBackend
from phonograd.device_runtime.formats.manifest import Artifacts
from phonograd.device_runtime.formats.model_config import ADAPTER_A, ADAPTER_B
from phonograd.device_runtime.formats.tensor_file import Array, load_tensors
from phonograd.device_runtime.text.output_sample import SampleDraw, draw_output_sample
from phonograd.device_runtime.text.windows import windows
from phonograd.device_runtime.training.round import Round, RoundSettings
from phonograd.export.adapters import with_adapters
from phonograd.export.artifacts import export_artifacts
from phonograd.export.torch_layout import seeded_weights, to_canonical
from tests.golden.cases import CASES, Case, spread_of
from tests.golden.engines import open_engine
from tests.golden.torch_reference import TorchTrainer, few_words, relative_error, sample_of, windows_of
from tests.support.artifacts import exported, model_weights, words

R, STEPS, RATE, TOLERANCE = 3, 6, 0.5, 1e-5
NAMES = ("lstm-clipped", "lstm-lwf", "gru-tied-lwf", "gru", "lstm-tied-projected", "cifg", "cifg-tied-lwf")


def add_adapters(name: str) -> Case:
    case = CASES[name]
    return Case(msgspec.structs.replace(case.model, adapters=R), case.training)


def artifacts_of(case: Case) -> Artifacts:
    return exported(case.model, case.training, spread=spread_of(case.model))


def merge_adapters(tensors: dict[str, Array]) -> dict[str, Array]:
    """The plain model, float64 sums."""
    plain = {}
    for name, array in tensors.items():
        if name + ADAPTER_A in tensors:
            low = tensors[name + ADAPTER_B].astype(np.float64) @ tensors[name + ADAPTER_A]
            plain[name] = (array + low.reshape(array.shape)).astype(np.float32)
        elif not name.endswith((ADAPTER_A, ADAPTER_B)):
            plain[name] = array
    return plain


class AdaptedTrainer(TorchTrainer):
    """Trains B of each adapter and the biases."""

    def __init__(self, case: Case, tensors: dict[str, Array], sample: OutputSample | None):
        plain = Case(case.model.plain, case.training)
        super().__init__(plain, merge_adapters(tensors), sample)
        self._case, self.tensors = plain, dict(tensors)

    def _update(self, learning_rate: float) -> None:
        state = {name: one.grad.numpy() for name, one in self.model.named_parameters() if one.grad is not None}
        gradients = {}
        for name, whole in to_canonical(state, self._case.model).items():
            if name + ADAPTER_A not in self.tensors:
                gradients[name] = whole
                continue
            A = self.tensors[name + ADAPTER_A]
            gradients[name + ADAPTER_B] = whole.reshape(-1, A.shape[1]).astype(np.float64) @ A.T
        norm = np.sqrt(sum(np.square(one, dtype=np.float64).sum() for one in gradients.values()))
        scale = min(1.0, (self._case.training.clip_norm or np.inf) / (norm + 1e-6))
        for name, gradient in gradients.items():
            self.tensors[name] = (self.tensors[name] - learning_rate * scale * gradient).astype(np.float32)
        self.model.load(merge_adapters(self.tensors))


# The unfused graph is held to the fused one below.
RUNS = [(name, "fused", number % 2 == 0) for number, name in enumerate(NAMES)]
RUNS += [("lstm-clipped", "fused", False), ("gru-tied-lwf", "fused", False)]
RUNS += [("lstm-lwf", "ort", True), ("gru-tied-lwf", "ort", False), ("cifg", "ort", True)]
with_and_without_sample = pytest.mark.parametrize(
    ("name", "sampled"), [("lstm-clipped", False), ("gru-tied-lwf", True)]
)


@pytest.mark.parametrize(("name", "engine", "drawn"), RUNS)
def test_steps_agree_with_torch(name: str, engine: str, drawn: bool) -> None:
    case = add_adapters(name)
    sample = sample_of(case) if drawn else None
    first = model_weights(case.model, spread=spread_of(case.model))
    reference = AdaptedTrainer(case, first, sample)
    backend = open_engine(engine, artifacts_of(case), BackendOptions(sample=sample))
    for window in few_words(case, STEPS) if drawn else windows_of(case, STEPS):
        np.testing.assert_allclose(backend.step(window, RATE), reference.step(window, RATE), rtol=TOLERANCE)
    trained = backend.weights()
    backend.close()
    for tensor, before in first.items():
        if tensor in case.model.frozen_by_adapters():
            np.testing.assert_array_equal(trained[tensor], before)
            continue
        expected = reference.tensors[tensor]
        assert relative_error(trained[tensor], expected) <= TOLERANCE, tensor
        assert relative_error(before, expected) > 100 * TOLERANCE, tensor


@with_and_without_sample
def test_one_step_with_the_gradient_of_a_whole_text(tmp_path: Path, name: str, sampled: bool) -> None:
    case = add_adapters(name)
    artifacts, first = artifacts_of(case), model_weights(case.model, spread=spread_of(case.model))
    stream = np.random.default_rng(0).integers(0, 20, 5 * 15 + 7) * 2
    sample = draw_output_sample(stream, words(40).frequencies(), SampleDraw(4, 1)) if sampled else None
    reference = AdaptedTrainer(case, first, sample)
    reference.full_batch(windows(stream, case.training.minibatch, case.training.bptt), RATE)
    draw = {"output_sample": 4, "sample_seed": 1} if sampled else {}
    settings = RoundSettings(folder=artifacts.folder, stream=stream, steps=1, seed=0, learning_rate=RATE, **draw)
    with Round(replace(settings, out=tmp_path / "out")) as round_:
        round_.train()
    for tensor, after in load_tensors(tmp_path / "out").items():
        moved = reference.tensors[tensor] - first[tensor]
        assert np.abs(after - first[tensor] - moved).max() <= 1e-3 * np.abs(moved).max() + 1e-7, tensor


def trained_by(case: Case, options: BackendOptions, steps: int = STEPS, fuse: bool = True) -> dict[str, Array]:
    backend = NativeBackend(artifacts_of(case), None, options, fuse)
    for window in few_words(case, steps):
        backend.step(window, RATE)
    weights = backend.weights()
    backend.close()
    return weights


@pytest.mark.parametrize("name", ["lstm-tied-projected", "gru-tied-lwf", "cifg"])
def test_all_kernels_agree_with_the_unfused_graph(name: str) -> None:
    case = add_adapters(name)
    expected = trained_by(case, BackendOptions(), fuse=False)
    for kernels in load_library().cpu_info()["kernels"]:
        for tensor, values in trained_by(case, BackendOptions(kernels=kernels)).items():
            assert relative_error(values, expected[tensor]) <= TOLERANCE, (kernels, tensor)


@with_and_without_sample
def test_threads_do_not_change_a_bit(name: str, sampled: bool) -> None:
    case = add_adapters(name)
    sample = sample_of(case) if sampled else None
    one, three = (trained_by(case, BackendOptions(threads=threads, sample=sample)) for threads in (1, 3))
    for tensor, values in one.items():
        np.testing.assert_array_equal(values, three[tensor])


@pytest.mark.parametrize("name", ["lstm", "lstm-tied-projected"])
def test_a_new_adapter_changes_nothing(tmp_path: Path, name: str) -> None:
    """Losses and scores are the plain model's to rounding until something was trained."""
    case = CASES[name]
    weights = seeded_weights(case.model, 1)
    model, both = with_adapters(case.model, weights, R, seed=4)
    for tensor in both.keys() - weights.keys():
        rows = both[tensor]
        np.testing.assert_allclose(rows @ rows.T, np.eye(R) if tensor.endswith(".A") else 0, atol=1e-6)
    frozen = model.frozen_by_adapters()
    folder = export_artifacts(tmp_path / "a", model, case.training, both, words(case.model.vocabulary), frozen=frozen)
    (window,) = windows_of(case, 1)
    found = list(_loss_and_scores(exported(case.model, case.training), window))
    for one, other in zip(found, _loss_and_scores(folder, window), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


def _loss_and_scores(artifacts: Artifacts, window: Window) -> Iterator[Array]:
    backend = NativeBackend(artifacts, None, BackendOptions())
    yield backend.logits(window.tokens)
    yield np.array(backend.step(window, RATE))
    backend.close()


@pytest.mark.parametrize(
    ("name", "engine"), [("lstm", "native"), ("gru-tied", "native"), ("lstm-tied-projected", "native"), ("cifg", "ort")]
)
def test_scores_are_those_of_the_merged_model(tmp_path: Path, name: str, engine: str) -> None:
    case = add_adapters(name)
    plain = case.model.plain
    weights = merge_adapters(model_weights(case.model, spread=spread_of(case.model)))
    folder = export_artifacts(tmp_path / "a", plain, case.training, weights, words(plain.vocabulary))
    tokens = np.arange(40).reshape(20, 2)
    found = []
    for artifacts in (artifacts_of(case), folder):
        backend = open_engine(engine, artifacts)
        found.append(backend.logits(tokens))
        backend.close()
    np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-5)
