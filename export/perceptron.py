"""A perceptron as training artifacts: paper P's model of digits (3 x 2000 units, Table 3)."""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto

from phonograd.device_runtime.base.files import storage_errors
from phonograd.device_runtime.formats.manifest import EVAL_MODEL
from phonograd.device_runtime.formats.tensor_file import Array
from phonograd.export.gradient_graph import write_gradient_graph
from phonograd.export.onnx_graph import LOGITS, LOSS, Graph

# The inputs of the graphs.
IMAGES, LABELS = "images", "labels"


@dataclass(frozen=True)
class PerceptronConfig:
    """A perceptron with ReLU. sizes: inputs, hidden layers and classes, in order. Dropout applies while training."""

    sizes: tuple[int, ...] = (784, 2000, 2000, 2000, 10)
    input_dropout: float = 0.2
    hidden_dropout: float = 0.5
    clip_norm: float | None = 10.0


def first_weights(config: PerceptronConfig, seed: int) -> dict[str, Array]:
    """Random weights [outputs, inputs] by He's rule, and biases [outputs] of zero; float32."""
    random = np.random.default_rng(seed)
    weights: dict[str, Array] = {}
    for layer, (inputs, outputs) in enumerate(pairwise(config.sizes)):
        scale = np.sqrt(2 / inputs)
        weights[f"{layer}.weight"] = random.normal(0, scale, (outputs, inputs)).astype(np.float32)
        weights[f"{layer}.bias"] = np.zeros(outputs, np.float32)
    return weights


def write_perceptron(folder: Path, config: PerceptronConfig, minibatch: int, evaluated: int) -> None:
    """Write training_model.onnx, optimizer_model.onnx and eval_model.onnx to a folder, which is made if need be.

    minibatch: images [minibatch, inputs] float32 and labels [minibatch] int64 of a step. evaluated: images of a run of
    the evaluation graph, whose logits are [evaluated, classes]. Raises StorageError.
    """
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_gradient_graph(folder, _training_graph(config, minibatch), config.clip_norm)
        onnx.save(_evaluation_graph(config, evaluated).model("evaluation"), folder / EVAL_MODEL)


def _training_graph(config: PerceptronConfig, minibatch: int) -> Graph:
    graph = Graph()
    x = graph.input(IMAGES, TensorProto.FLOAT, [minibatch, config.sizes[0]])
    graph.input(LABELS, TensorProto.INT64, [minibatch])
    for name, values in first_weights(config, 0).items():  # the weights come from a file later
        graph.trainable.append(graph.constant(name, values))
    logits = _layers(graph, x, config, dropout=True)
    graph.node("SoftmaxCrossEntropyLoss", [logits, LABELS], LOSS, "log_p", reduction="mean")
    graph.output(LOSS, TensorProto.FLOAT, [])
    return graph


def _evaluation_graph(config: PerceptronConfig, evaluated: int) -> Graph:
    graph = Graph()
    x = graph.input(IMAGES, TensorProto.FLOAT, [evaluated, config.sizes[0]])
    for layer, (inputs, outputs) in enumerate(pairwise(config.sizes)):
        graph.input(f"{layer}.weight", TensorProto.FLOAT, [outputs, inputs])
        graph.input(f"{layer}.bias", TensorProto.FLOAT, [outputs])
    graph.node("Identity", [_layers(graph, x, config, dropout=False)], LOGITS)
    graph.output(LOGITS, TensorProto.FLOAT, [evaluated, config.sizes[-1]])
    return graph


def _layers(graph: Graph, x: str, config: PerceptronConfig, dropout: bool) -> str:
    last = len(config.sizes) - 2
    for layer in range(last + 1):
        if dropout:
            x = graph.dropout(x, config.hidden_dropout if layer else config.input_dropout)
        x = graph.node("Gemm", [x, f"{layer}.weight", f"{layer}.bias"], f"{layer}.sums", transB=1)
        if layer < last:
            x = graph.node("Relu", [x], f"{layer}.rectified")
    return x
