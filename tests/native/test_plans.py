"""Which models' steps run fused: no gradient of a matrix has memory, and logits have one matrix."""

import re
from collections.abc import Mapping

import numpy as np
import pytest

from phonograd.device_runtime.engine.backend import BackendOptions, OutputSample
from phonograd.device_runtime.engine.native import NativeBackend
from phonograd.device_runtime.formats.manifest import TrainingConfig
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from tests.support.artifacts import exported

V, C, E, H, T, B = 3000, 2000, 24, 40, 3, 5
TRAINING = TrainingConfig(minibatch=B, bptt=T)
LWF = TrainingConfig(minibatch=B, bptt=T, loss="lwf")
LWF_MEAN = TrainingConfig(minibatch=B, bptt=T, loss="lwf", loss_reduction="mean")
MODELS: Mapping[str, tuple[LanguageModelConfig, TrainingConfig]] = {
    "untied": (LanguageModelConfig("lstm", V, E, H, 2), TRAINING),
    "tied": (LanguageModelConfig("lstm", V, H, H, 2, tied=True), TRAINING),
    "lwf": (LanguageModelConfig("lstm", V, E, H, 1), LWF),
    "tied lwf": (LanguageModelConfig("gru", V, E, H, 1, tied=True), LWF_MEAN),
    "adapters": (LanguageModelConfig("lstm", V, E, H, 2, adapters=4), TRAINING),
    "tied, adapters, lwf": (LanguageModelConfig("gru", V, E, H, 1, tied=True, adapters=4), LWF),
    "tied, coupled": (LanguageModelConfig("cifg", V, E, H, 1, tied=True, output_bias=False), TRAINING),
    "tied, projected": (LanguageModelConfig("gru", V, E, H, 1, tied=True, output_bias=False), TRAINING),
}


@pytest.mark.parametrize(
    ("name", "sampled"), [(name, number % 2 == 1) for number, name in enumerate([*MODELS, "untied"])]
)
def test_nothing_as_large_as_a_weight_is_stored_but_the_logits(name: str, sampled: bool) -> None:
    words = C if sampled else V
    sample = OutputSample(np.arange(C), np.zeros(C, np.float32)) if sampled else None
    backend = NativeBackend(exported(*MODELS[name]), None, BackendOptions(sample=sample))
    plan = backend.plan()
    backend.close()
    assert plan.count(": output layer, softmax") == 1
    sizes = re.findall(r"^ +\d+ (\d+) \d+-\d+ (.+)$", plan, re.MULTILINE)
    logits = ["logits", "teacher's logits"] if "lwf" in name else ["logits"]
    assert sorted(value for size, value in sizes if int(size) >= 4 * words * T * B) == logits


@pytest.mark.parametrize(("name", "layers"), [("adapters", 2), ("tied, adapters, lwf", 1)])
def test_no_gradient_of_a_matrix_with_an_adapter_is_made(name: str, layers: int) -> None:
    backend = NativeBackend(exported(*MODELS[name]), None, BackendOptions())
    plan = backend.plan()
    backend.close()
    assert plan.count("weights' gradients factored") == layers
    assert plan.count("gradient of an adapter") == 2 * layers
    assert len(re.findall(r"output layer, softmax.*adapter R=4", plan)) == 1


@pytest.mark.parametrize(
    ("train", "backward"), [(("decoder.weight", "decoder.bias"), 0), (("lstm.1.R",), 1), (("lstm.0.B",), 2)]
)
def test_nothing_below_the_lowest_trained_tensor_runs_backward(train: tuple[str, ...], backward: int) -> None:
    backend = NativeBackend(exported(*MODELS["untied"], train=train), None, BackendOptions())
    plan = backend.plan()
    backend.close()
    assert plan.count(": output layer, softmax") == 1
    assert plan.count("recurrent backward:") == backward
    assert re.findall(r"^      (\S+) \[", plan, re.MULTILINE) == sorted(train, reverse=True)
