"""CIFG layers run as one operator where the graph is the one that exports write, and node by node where it is not."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from phonograd.device_runtime.engine.backend import BackendOptions
from phonograd.device_runtime.engine.graph import NativeGraph
from phonograd.device_runtime.engine.native import NativeBackend
from phonograd.device_runtime.formats.manifest import OPTIMIZER_MODEL, TRAINING_MODEL, WEIGHTS, TrainingConfig
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import Array
from tests.support.artifacts import exported

T, B, V = 5, 3, 40
MODEL = LanguageModelConfig("cifg", V, 6, 8, 2, tied=True)
TRAINING = TrainingConfig(minibatch=B, bptt=T, learning_rate=0.5)


def train(folder: Path, change: Callable[[Any], None], fuse: bool) -> dict[str, Array]:
    """The weights after two steps of the training graph after a change of it."""
    artifacts = exported(MODEL, TRAINING, spread=10.0)
    model = onnx.load(artifacts.path(TRAINING_MODEL))
    change(model.graph)
    onnx.save(model, folder / "model.onnx")
    random = np.random.default_rng(3)
    with NativeGraph(
        folder / "model.onnx", artifacts.path(OPTIMIZER_MODEL), artifacts.path(WEIGHTS), fuse=fuse
    ) as graph:
        for _ in range(2):
            for name in ("tokens", "targets"):
                graph.set(name, random.integers(0, V, (T, B)))
            graph.run(0.5)
        return {spec.name: graph.get(spec.name) for spec in MODEL.tensor_specs()}


def constant(name: str, value: Array) -> Callable[[Any], None]:
    """Every CIFG's constant of that kind has this value instead."""

    def change(graph: Any) -> None:
        found = [one for one in graph.initializer if one.name.endswith(name)]
        assert found
        for one in found:
            one.CopyFrom(numpy_helper.from_array(value, one.name))

    return change


def reading(value: str) -> Callable[[Any], None]:
    """Add a node that reads the value, and an output of its result."""

    def change(graph: Any) -> None:
        assert any(value in node.output for node in graph.node)
        graph.node.append(helper.make_node("Neg", [value], ["read"], name="read"))
        graph.output.append(helper.make_tensor_value_info("read", onnx.TensorProto.FLOAT, None))

    return change


OTHERS = {
    "no sign is turned": constant("W.signs", np.ones((4, 1), np.float32)),
    "another gate is coupled": constant("R.numbers", np.array([0, 1, 1, 2])),
    "biases are coupled otherwise": constant("B.numbers", np.array([0, 1, 0, 2, 3, 4, 4, 5])),
    "the units are read": reading("cifg.0.steps"),
    "four gates' gradient is read": reading("cifg.0.W.four_grad"),
    "R P is read": reading("cifg.1.R.projected"),
    "R P's gradient is read": reading("cifg.1.R.projected_grad"),
    "P's gradient is read": reading("cifg.0.P.projection_grad"),
    "nothing is changed": lambda graph: None,
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_graph_trains_as_its_nodes_do(tmp_path: Path, name: str) -> None:
    fused, expected = (train(tmp_path, OTHERS[name], fuse) for fuse in (True, False))
    for tensor, array in expected.items():
        assert np.linalg.norm(fused[tensor] - array) <= 1e-5 * np.linalg.norm(array), tensor


def test_all_layers_are_fused_and_no_gradient_of_a_matrix_is_stored() -> None:
    backend = NativeBackend(exported(MODEL, TRAINING, spread=10.0), None, BackendOptions())
    plan = backend.plan()
    backend.close()
    assert plan.count(" CIFG sweep") == 4  # two layers, forward and backward
    assert "LSTM sweep" not in plan
    gradients = re.findall(r"^ +(\S+) \[[\d,]+\] (dense|factored)", plan, re.MULTILINE)
    assert len(gradients) == len(MODEL.tensor_specs())
    assert {name for name, form in gradients if form == "dense"} == {"cifg.0.B", "cifg.1.B", "decoder.bias"}
