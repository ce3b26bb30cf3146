"""Graphs that look like those that the planner fuses, and are others: they train as they do node by node."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phonograd.device_runtime.base.errors import ArtifactsError
from phonograd.device_runtime.engine.graph import NativeGraph
from phonograd.device_runtime.formats.tensor_file import Array, save_tensors
from tests.native.graphs import SmallGraph, node

OPTIMIZER = Path(__file__).parent / "fuzz" / "corpus" / "onnx" / "optimizer_model"
N, H, V, E = 4, 3, 6, 2
BUFFER = "_grad.accumulation.buffer"
LEARNING_RATE, TOLERANCE = 0.5, 1e-5
RANDOM = np.random.default_rng(8)


def normal(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


def mark(parameter: str, gradient: str) -> Any:
    return node("InPlaceAccumulatorV2", f"{parameter}{BUFFER} {gradient}", f"{gradient}.done")


FORWARD = node("Gemm", "x w b", "logits", transB=1)
LOSS = node("SoftmaxCrossEntropyLoss", "logits t", "loss log_p", reduction="sum")
LOSS_GRADIENT = node("SoftmaxCrossEntropyLossGrad", "one log_p t", "d", reduction="sum")
OF_HIDDEN = node("Gemm", "d w", "dx")
OF_WEIGHT = node("Gemm", "d x", "dw", transA=1)
OF_BIAS = node("ReduceSum", "d rows", "db", keepdims=0)
MARKS = (mark("w", "dw"), mark("b", "db"))
OF_LOW = node("Gemm", "d B", "dlow")
OF_ADAPTER = node("Gemm", "d low", "dB", transA=1)
ADAPTED = (node("Gemm", "low B b", "added", transB=1), node("Gemm", "x w added", "logits", transB=1))
ADAPTED_BACKWARD = (OF_HIDDEN, OF_LOW, OF_ADAPTER, OF_BIAS, mark("B", "dB"), mark("b", "db"))
LOW: tuple[list[str], Mapping[str, Array], Mapping[str, Array]]
LOW = ["loss", "dx", "dlow"], {"low": normal(N, E)}, {"B": normal(V, E)}
BACKWARD = (OF_HIDDEN, OF_WEIGHT, OF_BIAS, *MARKS)
INPUTS = {"x": normal(N, H), "t": ints(1, 5, 0, 1)}
PARAMETERS = {"w": normal(V, H), "b": normal(V)}
CONSTANTS = {
    "one": np.array(1, np.float32),
    "half": np.array(0.5, np.float32),
    "on": np.array(True),
    "rows": ints(0),
    "columns": ints(1),
    "wide": ints(V, N),
    "across": ints(V, N * H // V),
    "shape": ints(V, E),
    "first": ints(0),
    "halves": ints(2 * H, 2 * E),
}


def train(
    folder: Path,
    nodes: Sequence[Any],
    outputs: Sequence[str],
    inputs: Mapping[str, Array],
    parameters: Mapping[str, Array],
    fuse: bool,
) -> dict[str, Array]:
    """Outputs and parameters after two steps."""
    marked = (made.input[0] for made in nodes if made.op_type == "InPlaceAccumulatorV2")
    buffers = {name: parameters[name.removesuffix(BUFFER)] for name in marked}
    graph = SmallGraph(nodes, {**inputs, **parameters, **buffers}, outputs, CONSTANTS)
    save_tensors(folder / "weights", parameters)
    with NativeGraph(graph.save(folder / "model.onnx"), OPTIMIZER, folder / "weights", fuse=fuse) as native:
        for name, values in inputs.items():
            native.set(name, values)
        for _ in range(2):
            native.run(LEARNING_RATE)
        return {name: native.get(name) for name in (*outputs, *parameters)}


GRAPHS: dict[str, tuple[Sequence[Any], Sequence[str], Mapping[str, Array], Mapping[str, Array]]] = {
    "the output layer itself": ((FORWARD, LOSS, LOSS_GRADIENT, *BACKWARD), ["loss", "dx"], {}, {}),
    "one bias for all words": (
        (FORWARD, LOSS, LOSS_GRADIENT, OF_HIDDEN, OF_WEIGHT, MARKS[0]),
        ["loss", "dx"],
        {},
        {"b": normal(1)},
    ),
    "two gradients of the hidden states": (
        (FORWARD, LOSS, LOSS_GRADIENT, *BACKWARD, node("Gemm", "d w", "again")),
        ["loss", "dx", "again"],
        {},
        {},
    ),
    "two gradients of the weight": (
        (FORWARD, LOSS, LOSS_GRADIENT, *BACKWARD, node("Gemm", "d x", "again", transA=1), mark("w", "again")),
        ["loss", "dx"],
        {},
        {},
    ),
    "an addend to the weight's gradient": (
        (FORWARD, LOSS, LOSS_GRADIENT, OF_HIDDEN, node("Gemm", "d x more", "dw", transA=1), OF_BIAS, *MARKS),
        ["loss", "dx"],
        {"more": normal(V, H)},
        {},
    ),
    "an addend to the hidden states' gradient": (
        (FORWARD, LOSS, LOSS_GRADIENT, node("Gemm", "d w more", "dx"), OF_WEIGHT, OF_BIAS, *MARKS),
        ["loss", "dx"],
        {"more": normal(N, H)},
        {},
    ),
    "a loss that weighs itself": (
        (
            FORWARD,
            LOSS,
            node("SoftmaxCrossEntropyLossGrad", "loss log_p t", "d", reduction="sum"),
            *BACKWARD,
        ),
        ["loss", "dx"],
        {},
        {},
    ),
    "gradients of the logits that are read as a view": (
        (FORWARD, LOSS, LOSS_GRADIENT, *BACKWARD, node("Identity", "d", "seen")),
        ["loss", "dx", "seen"],
        {},
        {},
    ),
    "gradients of the logits in another shape": (
        (
            FORWARD,
            LOSS,
            LOSS_GRADIENT,
            OF_HIDDEN,
            OF_BIAS,
            MARKS[1],
            node("Reshape", "d wide", "turned"),
            node("Reshape", "x across", "turned.x"),
            node("Gemm", "turned turned.x", "dsmall", transA=1),
            mark("small", "dsmall"),
        ),
        ["loss", "dx"],
        {},
        {"small": normal(N, N * H // V)},
    ),
    "sums over words where there are as many tokens": (
        (FORWARD, LOSS, LOSS_GRADIENT, OF_HIDDEN, OF_WEIGHT, node("ReduceSum", "d columns", "db", keepdims=0), *MARKS),
        ["loss", "dx"],
        {"x": normal(V, H), "t": ints(1, 5, 0, 1, 2, 2)},
        {},
    ),
    "hidden states that are a parameter": (
        (FORWARD, LOSS, LOSS_GRADIENT, OF_HIDDEN, mark("x", "dx"), OF_WEIGHT, OF_BIAS, *MARKS),
        ["loss", "dx"],
        {},
        {"x": normal(N, H)},
    ),
    "a product of a parameter that is changed before": (
        (node("Gemm", "dy w", "g", transA=1), mark("w", "dw"), mark("u", "g")),
        [],
        {"dy": normal(V, E), "dw": normal(V, H)},
        {"w": normal(V, H), "u": normal(E, H)},
    ),
    "embeddings that share a gradient": (
        (
            node("Add", "dy dy", "sum"),
            node("GatherGrad", "shape ids sum", "de", axis=0),
            node("GatherGrad", "shape others sum", "df", axis=0),
            mark("e", "de"),
            mark("f", "df"),
        ),
        [],
        {"dy": normal(3, E), "ids": ints(1, 1, 1), "others": ints(2, 1, 2)},
        {"e": normal(V, E), "f": normal(V, E)},
    ),
    "an embedding whose gradient is an input": (
        (node("GatherGrad", "shape ids dy", "de", axis=0), mark("e", "de")),
        [],
        {"dy": normal(3, E), "ids": ints(1, 1, 1)},
        {"e": normal(V, E)},
    ),
    "an adapter": ((*ADAPTED, LOSS, LOSS_GRADIENT, *ADAPTED_BACKWARD), *LOW),
    "an adapter beside a weight that is trained": (
        (*ADAPTED, LOSS, LOSS_GRADIENT, *ADAPTED_BACKWARD, OF_WEIGHT, MARKS[0]),
        *LOW,
    ),
    "an adapter whose low values need no gradient": (
        (*ADAPTED, LOSS, LOSS_GRADIENT, OF_ADAPTER, mark("B", "dB")),
        ["loss"],
        *LOW[1:],
    ),
    "an adapter's product that another node reads": (
        (*ADAPTED, LOSS, LOSS_GRADIENT, *ADAPTED_BACKWARD, node("Neg", "added", "seen")),
        ["loss", "dx", "dlow", "seen"],
        *LOW[1:],
    ),
    "an adapter's gradient that counts twice": (
        (*ADAPTED, LOSS, LOSS_GRADIENT, *ADAPTED_BACKWARD[:-2], node("Sum", "dB dB", "twice"), mark("B", "twice")),
        *LOW,
    ),
    "an adapter whose bias counts half": (
        (node("Gemm", "low B b", "added", transB=1, beta=0.5), ADAPTED[1], LOSS, LOSS_GRADIENT, *ADAPTED_BACKWARD),
        *LOW,
    ),
    "an adapter that counts half": (
        (ADAPTED[0], node("Gemm", "x w added", "logits", transB=1, beta=0.5), LOSS, LOSS_GRADIENT, *ADAPTED_BACKWARD),
        *LOW,
    ),
    "a loss of which only the probabilities are read": (
        (FORWARD, LOSS, node("Neg", "log_p", "seen"), mark("b", "b")),
        ["seen"],
        {},
        {},
    ),
    "a dropout of which only the mask is read": (
        (
            node("Dropout", "x half on", "dropped kept"),
            node("Cast", "kept", "seen", to=1),
            mark("b", "b"),
        ),
        ["seen"],
        {},
        {"b": normal(V)},
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_trains_fused_as_it_does_node_by_node(tmp_path: Path, name: str) -> None:
    nodes, outputs, inputs, parameters = GRAPHS[name]
    read = {value.removesuffix(BUFFER) for made in nodes for value in made.input}
    inputs = {key: values for key, values in {**INPUTS, **inputs}.items() if key in read and key not in parameters}
    parameters = {key: values for key, values in {**PARAMETERS, **parameters}.items() if key in read}
    fused, single = (train(tmp_path, nodes, outputs, inputs, parameters, fuse) for fuse in (True, False))
    for value, expected in single.items():
        np.testing.assert_allclose(fused[value], expected, rtol=TOLERANCE, atol=TOLERANCE, err_msg=value)


T, B = 2, 3
CELL = {"v": normal(T, B, E), "W": normal(1, 4 * H, E), "R": normal(1, 4 * H, H), "h": normal(1, B, H)}
CELL |= {"c": normal(1, B, H), "dy": normal(T, 1, B, H)}
SWEEP = node("LSTMTraining", "v W R - - h c", "y hn cn cells gates", hidden_size=H)
BACK = node("LSTMGrad", "v W R - h c y cells gates dy", "dv dW dR", hidden_size=H)
AS_MATRIX = node("Squeeze", "dW first", "dW2")
OF_B = node("Gemm", "dW2 A", "dB", transB=1)
RECURRENT: dict[str, tuple[Any, ...]] = {
    "an adapter of recurrent weights": (AS_MATRIX, OF_B),
    "whose matrix's gradient another node reads": (AS_MATRIX, OF_B, node("Neg", "dW", "seen")),
    "whose gradient is half": (AS_MATRIX, node("Gemm", "dW2 A", "dB", transB=1, alpha=0.5)),
    "whose gradient has an addend": (AS_MATRIX, node("Gemm", "dW2 A more", "dB", transB=1)),
    "of a gradient in another shape": (node("Reshape", "dW halves", "dW2"), OF_B),
}


@pytest.mark.parametrize("name", RECURRENT)
def test_an_adapter_of_recurrent_weights_trains_as_it_does_node_by_node(tmp_path: Path, name: str) -> None:
    nodes = (SWEEP, BACK, *RECURRENT[name], mark("B", "dB"))
    rows = 2 * H if "shape" in name else 4 * H
    parameters = {"B": normal(rows, 2)}
    inputs = {**CELL, "A": normal(2, 4 * H * E // rows), **({"more": normal(rows, 2)} if "addend" in name else {})}
    outputs = ["dv", *(["seen"] if "reads" in name else [])]
    fused, single = (train(tmp_path, nodes, outputs, inputs, parameters, fuse) for fuse in (True, False))
    assert np.abs(single["B"] - parameters["B"]).max() > 1e-3
    for value, expected in single.items():
        np.testing.assert_allclose(fused[value], expected, rtol=TOLERANCE, atol=TOLERANCE, err_msg=value)


REFUSED: dict[str, tuple[SmallGraph, str]] = {
    "gates that another node reads": (
        SmallGraph([SWEEP, node("Neg", "gates", "seen"), BACK], CELL, ["seen", "dv"]),
        "value 'gates' is overwritten by the node that reads it",
    ),
    "gates that are an output": (SmallGraph([SWEEP, BACK], CELL, ["gates", "dv"]), "value 'gates' is overwritten"),
    "gates of two gradients": (
        SmallGraph([SWEEP, BACK, node("LSTMGrad", "v W R - h c y cells gates dy", "dv2", hidden_size=H)], CELL, ["dv"]),
        "value 'gates' is overwritten",
    ),
    "gates that are an input": (
        SmallGraph(
            [SWEEP, node("LSTMGrad", "v W R - h c y cells other dy", "dv", hidden_size=H)],
            CELL | {"other": normal(T, 1, B, 4 * H)},
            ["dv"],
        ),
        "input 'other' is not output 4 of a node LSTMTraining",
    ),
    "cells that are an input": (
        SmallGraph(
            [SWEEP, node("LSTMGrad", "v W R - h c y other gates dy", "dv", hidden_size=H)],
            CELL | {"other": normal(T, 1, B, H)},
            ["dv"],
        ),
        "input 'other' is not output 3 of a node LSTMTraining",
    ),
    "a mark that is read": (
        SmallGraph(
            [mark("h", "h"), node("Cast", "h.done", "seen", to=1)],
            {f"h{BUFFER}": CELL["h"]} | CELL,
            ["seen"],
        ),
        "input 'h.done' has no data",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_be_read_after_it_is_overwritten_is_refused(tmp_path: Path, name: str) -> None:
    graph, said = REFUSED[name]
    with pytest.raises(ArtifactsError, match=said):
        graph.run(tmp_path)


def test_views_of_views_take_neither_stack_nor_quadratic_time(tmp_path: Path) -> None:
    last = 60_000
    views = [node("Identity", f"v{i}", f"v{i + 1}") for i in range(last)]
    nodes = (node("Gemm", "dy x", "v0", transA=1), *views, mark("w", f"v{last}"))
    inputs = {"dy": normal(N, V), "x": normal(N, H)}
    fused = train(tmp_path, nodes, [], inputs, {"w": np.zeros((V, H), np.float32)}, fuse=True)
    assert np.linalg.norm(fused["w"]) > 0
