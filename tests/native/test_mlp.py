"""A model that is no language model: a perceptron of two hidden layers, as in paper P, trained through NativeGraph."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from phonograd.device_runtime.engine.backend import BackendOptions
from phonograd.device_runtime.engine.graph import NativeGraph
from phonograd.device_runtime.formats.tensor_file import Array, save_tensors

SIZES, N = (12, 16, 16, 5), 10
STEPS, LEARNING_RATE, TOLERANCE = 20, 0.3, 1e-5


def first_weights() -> dict[str, Array]:
    random = np.random.default_rng(2)
    weights = {}
    for layer, (inputs, outputs) in enumerate(pairwise(SIZES)):
        weights[f"{layer}.weight"] = random.normal(0, inputs**-0.5, (outputs, inputs)).astype(np.float32)
        weights[f"{layer}.bias"] = random.normal(0, 0.1, outputs).astype(np.float32)
    return weights


def export(folder: Path, weights: dict[str, Array], clip_norm: float | None) -> None:
    from onnx import TensorProto

    from phonograd.export.gradient_graph import write_gradient_graph
    from phonograd.export.onnx_graph import Graph

    graph = Graph()
    x = graph.input("x", TensorProto.FLOAT, [N, SIZES[0]])
    targets = graph.input("targets", TensorProto.INT64, [N])
    for name, values in weights.items():
        graph.trainable.append(graph.constant(name, values))
    for layer in range(len(SIZES) - 1):
        x = graph.node("Gemm", [x, f"{layer}.weight", f"{layer}.bias"], f"{layer}.sums", transB=1)
        if layer < len(SIZES) - 2:
            x = graph.node("Relu", [x], f"{layer}.rectified")
    graph.node("SoftmaxCrossEntropyLoss", [x, targets], "loss", "log_p", reduction="mean")
    graph.output("loss", TensorProto.FLOAT, [])
    write_gradient_graph(folder, graph, clip_norm)
    save_tensors(folder / "weights.safetensors", weights)


def batches() -> list[tuple[Array, Array]]:
    random = np.random.default_rng(4)
    return [
        (random.normal(size=(N, SIZES[0])).astype(np.float32), random.integers(0, SIZES[-1], N)) for _ in range(STEPS)
    ]


def torch_trained(weights: dict[str, Array], clip_norm: float | None) -> tuple[list[float], dict[str, Array]]:
    import torch

    tensors = {name: torch.tensor(values, requires_grad=True) for name, values in weights.items()}
    losses = []
    for x, targets in batches():
        hidden = torch.from_numpy(x)
        for layer in range(len(SIZES) - 1):
            hidden = hidden @ tensors[f"{layer}.weight"].T + tensors[f"{layer}.bias"]
            hidden = hidden.relu() if layer < len(SIZES) - 2 else hidden
        loss = torch.nn.functional.cross_entropy(hidden, torch.from_numpy(targets))
        gradients = torch.autograd.grad(loss, list(tensors.values()))
        norm = torch.sqrt(sum((gradient**2).sum() for gradient in gradients))
        scale = 1.0 if clip_norm is None else min(1.0, clip_norm / (float(norm) + 1e-6))
        with torch.no_grad():
            for tensor, gradient in zip(tensors.values(), gradients, strict=True):
                tensor -= LEARNING_RATE * scale * gradient
        losses.append(float(loss.detach()))
    return losses, {name: tensor.detach().numpy() for name, tensor in tensors.items()}


@pytest.mark.parametrize(("clip_norm", "fuse"), [(None, False), (0.3, True)])
def test_a_perceptron_trains_as_torch_trains_it(tmp_path: Path, clip_norm: float | None, fuse: bool) -> None:
    first = first_weights()
    export(tmp_path, first, clip_norm)
    files = (tmp_path / name for name in ("training_model.onnx", "optimizer_model.onnx", "weights.safetensors"))
    losses = []
    with NativeGraph(*files, options=BackendOptions(threads=2), fuse=fuse) as graph:
        for x, targets in batches():
            graph.set("x", x)
            graph.set("targets", targets)
            graph.run(LEARNING_RATE)
            losses.append(float(graph.get("loss")))
        found = {name: graph.get(name) for name in first}
    expected_losses, expected = torch_trained(first, clip_norm)
    np.testing.assert_allclose(losses, expected_losses, rtol=TOLERANCE)
    for name, values in expected.items():
        size = np.linalg.norm(values)
        assert np.linalg.norm(found[name] - values) <= TOLERANCE * size, name
        assert np.linalg.norm(first[name] - values) > 100 * TOLERANCE * size, f"{name} was not trained"
