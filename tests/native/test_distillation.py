"""The distillation graph: what it trains is the student of paper P's eq. 4, on every backend, fused or not."""

from collections.abc import Mapping

import numpy as np
import pytest

from phonograd.device_runtime.base.errors import UsageError
from phonograd.device_runtime.engine.backend import BackendOptions
from phonograd.device_runtime.engine.graph import NativeGraph
from phonograd.device_runtime.formats.manifest import (
    CHECKPOINT,
    EVAL_MODEL,
    OPTIMIZER_MODEL,
    TEACHER_PROBS,
    TRAINING_MODEL_DISTILL,
    WEIGHTS,
    Artifacts,
    TrainingConfig,
)
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import Array, Floats
from phonograd.device_runtime.text.vocabulary import Ids
from tests.native.epochs import CLIPPED, KERNELS, LWF, STEPS, B, E, H, T, V
from tests.native.epochs import LEARNING_RATE as RATE
from tests.support.artifacts import exported

MEAN = TrainingConfig(minibatch=B, bptt=T, learning_rate=RATE, clip_norm=None, loss_reduction="mean")
MODELS: Mapping[str, tuple[LanguageModelConfig, TrainingConfig]] = {
    "untied": (LanguageModelConfig("lstm", V, E, H, 2), CLIPPED),
    "mean": (LanguageModelConfig("lstm", V, E, H, 1), MEAN),
    "no bias": (LanguageModelConfig("gru", V, E, H, 1, output_bias=False), CLIPPED),
    "coupled": (LanguageModelConfig("cifg", V, E, H, 1, tied=True), CLIPPED),
    "tied": (LanguageModelConfig("lstm", V, H, H, 1, tied=True), CLIPPED),
    "lwf": (LanguageModelConfig("lstm", V, E, H, 1), LWF),
}


def artifacts_of(name: str) -> Artifacts:
    return exported(*MODELS[name], seed=3, spread=10, distill=True)


def windows() -> list[tuple[Ids, Floats]]:
    """Tokens [T, B] and soft targets [T·B, V]; padding's are zeros."""
    random = np.random.default_rng(5)
    made = []
    for _ in range(STEPS):
        probabilities = random.exponential(size=(T * B, V)) ** 4
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        made.append((random.integers(0, V, (T, B)), probabilities.astype(np.float32)))
    made[2][0][:, 1] = made[2][0][0, 0]
    made[-1][1][-2 * B :] = 0
    return made


def train(
    name: str, threads: int = 2, kernels: str | None = None, fuse: bool = True
) -> tuple[list[float], dict[str, Array]]:
    """Losses and weights after all windows, by the native engine."""
    artifacts = artifacts_of(name)
    manifest = artifacts.manifest
    paths = [artifacts.path(file) for file in (TRAINING_MODEL_DISTILL, OPTIMIZER_MODEL, WEIGHTS)]
    losses = []
    with NativeGraph(*paths, BackendOptions(threads=threads, seed=9, kernels=kernels), fuse) as graph:
        for tokens, probabilities in windows():
            graph.set("tokens", tokens)
            graph.set(TEACHER_PROBS, probabilities)
            graph.run(RATE)
            losses.append(float(graph.get("loss")))
            for state in manifest.states:
                if not state.input.startswith("teacher."):
                    graph.set(state.input, graph.get(state.output))
        return losses, {tensor.name: graph.get(tensor.name) for tensor in manifest.tensors}


def trained_by_ort(name: str) -> tuple[list[float], dict[str, Array]]:
    """The same by ONNX Runtime."""
    from onnxruntime.training import api

    artifacts = artifacts_of(name)
    checkpoint = api.CheckpointState.load_checkpoint(str(artifacts.path(CHECKPOINT)))
    module = api.Module(artifacts.path(TRAINING_MODEL_DISTILL), checkpoint, artifacts.path(EVAL_MODEL))
    optimizer = api.Optimizer(artifacts.path(OPTIMIZER_MODEL), module)
    own = [state for state in artifacts.manifest.states if not state.input.startswith("teacher.")]
    states = [np.zeros(state.shape, np.float32) for state in own]
    losses = []
    for tokens, probabilities in windows():
        module.train()
        loss, *states = module(tokens, probabilities, *states)
        optimizer.set_learning_rate(RATE)
        optimizer.step()
        module.lazy_reset_grad()
        losses.append(float(loss))
    return losses, {t.name: np.array(checkpoint.parameters[t.name].data) for t in artifacts.manifest.tensors}


def assert_same(found: tuple[list[float], dict[str, Array]], expected: tuple[list[float], dict[str, Array]]) -> None:
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)
    for name, values in expected[1].items():
        np.testing.assert_allclose(found[1][name], values, atol=1e-5, rtol=1e-5, err_msg=name)


@pytest.mark.parametrize("name", MODELS)
def test_the_native_engine_trains_as_onnx_runtime(name: str) -> None:
    assert_same(train(name), trained_by_ort(name))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kernels", KERNELS)
def test_fused_as_unfused(name: str, kernels: str) -> None:
    assert_same(train(name, kernels=kernels), train(name, kernels=kernels, fuse=False))


def test_the_same_bits_on_any_number_of_threads() -> None:
    losses, weights = train("untied", threads=1)
    again, others = train("untied", threads=3)
    assert losses == again
    for name, values in weights.items():
        np.testing.assert_array_equal(values, others[name], err_msg=name)


@pytest.mark.parametrize("name", MODELS)
def test_the_output_layer_is_fused(name: str) -> None:
    paths = [artifacts_of(name).path(file) for file in (TRAINING_MODEL_DISTILL, OPTIMIZER_MODEL, WEIGHTS)]
    with NativeGraph(*paths) as graph, pytest.raises(UsageError, match="has no memory"):
        graph.get("student.log_probabilities")
