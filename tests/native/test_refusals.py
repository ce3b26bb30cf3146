"""What the engine refuses before anything runs, in words that name file, node and operator; what it leaves alone."""

import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from phonograd.device_runtime.base.errors import (
    ArtifactsError,
    TrainingError,
    UnsupportedError,
    UsageError,
    WeightsError,
)
from phonograd.device_runtime.engine.backend import MAX_THREADS, BackendOptions, OutputSample, Window
from phonograd.device_runtime.engine.graph import NativeGraph
from phonograd.device_runtime.engine.native import NativeBackend
from phonograd.device_runtime.formats.manifest import Artifacts, TrainingConfig, open_artifacts
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import Array, load_tensors, save_tensors
from tests.native.graphs import SmallGraph, node
from tests.support.artifacts import exported

V, T, B = 12, 3, 2


def zeros(*shape: int) -> Array:
    return np.zeros(shape, np.float32)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


def gates(cell: str, inputs: str = "x w r b - h c", outputs: str = "y", **attributes: object) -> SmallGraph:
    """An LSTM or GRU of T 2, B 3, E 4, H 5, given the inputs of an LSTM."""
    rows = {"LSTM": 20, "GRU": 15}[cell]
    given = {"x": zeros(2, 3, 4), "w": zeros(1, rows, 4), "r": zeros(1, rows, 5), "b": zeros(1, 2 * rows)}
    given |= {"h": zeros(1, 3, 5), "c": zeros(1, 3, 5), "lengths": ints(2, 2, 2).astype(np.int64), "p": zeros(1, 15)}
    return SmallGraph([node(cell, inputs, outputs, **attributes)], given, ["y"])


def one(
    operator: str, inputs: dict[str, Array], constants: dict[str, Array] | None = None, **attributes: object
) -> SmallGraph:
    """One node over the inputs, then the constants."""
    names = [*inputs, *(constants or {})]
    return SmallGraph([node(operator, " ".join(names), "y", **attributes)], inputs, ["y"], constants or {})


X, IDS = {"x": zeros(2, 3)}, {"ids": np.zeros((2, 3), np.int64)}
TARGETS = {"targets": np.zeros(2, np.int64)}
REFUSED: dict[str, tuple[SmallGraph, str]] = {
    "unknown operator": (one("Einsum", X, equation="ij->ji"), "no such operator"),
    "unknown domain": (one("Grad", X), "no such operator"),
    "unknown attribute": (one("Gemm", {**X, "b": zeros(3, 4)}, activation=1), "attribute 'activation' is not known"),
    "attribute of another type": (one("Gemm", {**X, "b": zeros(3, 4)}, transA=0.5), "'transA' has another type"),
    "factors": (one("MatMul", {**X, "b": zeros(4, 3)}), "do not fit"),
    "factors of three dimensions": (one("MatMul", {**X, "b": zeros(1, 3, 2)}), "expected 2 dimensions"),
    "a factor without rows": (one("MatMul", {"a": zeros(3), "b": zeros(3, 2)}), "do not fit"),
    "a transposed batch": (one("FusedMatMul", {**X, "b": zeros(3, 4)}, transA=1), "transA is not known"),
    "addend": (one("Gemm", {**X, "b": zeros(3, 4), "c": zeros(3)}), "does not fit [2,4]"),
    "broadcast": (one("Add", {**X, "b": zeros(2)}), "[2,3] and [2] do not broadcast"),
    "dtype": (one("Add", {**X, **IDS}), "input 'ids' has data type 7, expected 1"),
    "negated integers": (one("Neg", IDS), "has data type 7"),
    "embedding by floats": (one("Gather", {**X, "ids": zeros(2)}), "has data type 1, expected 7"),
    "embedding by columns": (one("Gather", {**X, **IDS}, axis=1), "only axis 0"),
    "axes that are no constant": (one("ReduceSum", {**X, "axes": ints(0)}), "'axes' must be a constant"),
    "shape that is no constant": (one("Reshape", {**X, "shape": ints(6)}), "'shape' must be a constant"),
    "axes apart": (one("ReduceSum", {"x": zeros(2, 3, 4)}, {"axes": ints(0, 2)}), "are not neighbours"),
    "axis twice": (one("ReduceSum", X, {"axes": ints(1, 1)}), "are not neighbours"),
    "axis out of range": (one("ReduceSum", X, {"axes": ints(2)}), "are not neighbours"),
    "reshape": (one("Reshape", X, {"shape": ints(4, 2)}), "does not fit"),
    "reshape to a free and a wrong size": (one("Reshape", X, {"shape": ints(4, -1)}), "a view"),
    "reshape to two free sizes": (one("Reshape", X, {"shape": ints(-1, -1)}), "more than one -1"),
    "reshape to a negative size": (one("Reshape", X, {"shape": ints(-2, -3)}), "does not fit"),
    "squeeze": (one("Squeeze", X, {"axes": ints(0)}), "is not 1"),
    "unsqueeze": (one("Unsqueeze", X, {"axes": ints(4)}), "axis out of range"),
    "expand": (one("Expand", {"x": zeros(1)}, {"shape": ints(2**40, 2**40)}), "out of range"),
    "transpose of another kind": (one("Transpose", X, perm=[0, 1]), "only perm [1, 0]"),
    "cast to integers": (one("Cast", X, to=7), "only casts to float32"),
    "softmax of columns": (one("Softmax", X, axis=0), "only the last axis"),
    "loss without reduction": (one("SoftmaxCrossEntropyLoss", {**X, **TARGETS}, reduction="none"), "'none'"),
    "targets": (one("SoftmaxCrossEntropyLoss", {**X, "t": ints(0, 0, 0)}), "expected [2]"),
    "class weights": (one("SoftmaxCrossEntropyLoss", {**X, **TARGETS, "w": zeros(3)}), "3 inputs, expected 2 to 2"),
    "missing inputs": (SmallGraph([node("Add", "x", "y")], X, ["y"]), "1 inputs, expected 2 to 2"),
    "an input left out": (SmallGraph([node("Add", "x -", "y")], X, ["y"]), "input 1 is left out"),
    "dropout of a free ratio": (
        one("Dropout", {**X, "ratio": np.array(0.5, np.float32)}, {"on": np.array(True)}),
        "the ratio is not a constant",
    ),
    "dropout switched off": (
        one("Dropout", X, {"ratio": np.array(0.5, np.float32), "on": np.array(False)}),
        "not switched on",
    ),
    "dropout of everything": (
        one("Dropout", X, {"ratio": np.array(1, np.float32), "on": np.array(True)}),
        "expected at least 0 and less than 1",
    ),
    "gradient of a negative table": (
        SmallGraph(
            [node("GatherGrad", "s ids dy", "y")], {"ids": ints(0), "dy": zeros(1, 2)}, ["y"], {"s": ints(-1, 2)}
        ),
        "expected at least 1",
    ),
    "gradient of an empty table": (
        SmallGraph(
            [node("GatherGrad", "s ids dy", "y")], {"ids": ints(0), "dy": zeros(1, 2)}, ["y"], {"s": ints(0, 2)}
        ),
        "expected at least 1",
    ),
    "product larger than a phone": (one("MatMul", {"a": zeros(60000, 1), "b": zeros(1, 60000)}), "at most 2^31"),
    "weights of integers": (
        one(
            "LSTM",
            {
                "x": zeros(2, 3, 4),
                "w": np.zeros((1, 20, 4), np.int64),
                "r": zeros(1, 20, 5),
                "b": zeros(1, 40),
                "lengths": ints(2),
                "h": zeros(1, 3, 5),
                "c": zeros(1, 3, 5),
            },
        ),
        "input 'w' has data type 7, expected 1",
    ),
    "no first states": (gates("LSTM", "x w r b - - -"), "is left out"),
    "sequence lengths": (gates("LSTM", "x w r b lengths h c"), "sequence lengths are not known"),
    "sequence lengths of a GRU": (gates("GRU", "x w r b lengths h", linear_before_reset=1), "sequence lengths"),
    "peepholes": (gates("LSTM", "x w r b - h c p"), "peepholes are not known"),
    "bidirectional": (gates("LSTM", direction="bidirectional"), "'bidirectional', expected forward"),
    "reverse": (gates("GRU", "x w r b - h", direction="reverse", linear_before_reset=1), "'reverse'"),
    "hidden size": (gates("LSTM", hidden_size=6), "hidden_size does not fit"),
    "reset before the product": (gates("GRU", "x w r b - h", linear_before_reset=0), "linear_before_reset is not 1"),
    "reset by default": (gates("GRU", "x w r b - h"), "linear_before_reset is not 1"),
    "activations": (gates("LSTM", activations=["Relu"] * 3), "attribute: "),
    "clip of cells": (gates("LSTM", clip=1.0), "attribute 'clip' is not known"),
    "coupled gates": (gates("LSTM", input_forget=1), "coupled input and forget gates"),
    "weights of another cell": (gates("LSTM", "x r w b - h c"), "expected [1,"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_graphs_the_engine_does_not_know_are_refused(tmp_path: Path, name: str) -> None:
    graph, reason = REFUSED[name]
    path = graph.save(tmp_path / "model.onnx")
    operator = graph.nodes[0].op_type
    with pytest.raises(ArtifactsError, match=re.escape(reason)) as refused:
        NativeGraph(path)
    message = str(refused.value)
    assert message.startswith(f"{path}: node ")
    assert f"the {operator}" in message
    assert "\n" not in message


def test_an_empty_constant_is_refused(tmp_path: Path) -> None:
    path = one("Softmax", {}, {"x": zeros(2, 0)}).save(tmp_path / "model.onnx")
    with pytest.raises(ArtifactsError, match=r"initializer 'x' \[2,0\] is empty"):
        NativeGraph(path)


@pytest.mark.parametrize("wrong", [-1, 3, 2**62])
def test_gradients_alone_check_their_ids(tmp_path: Path, wrong: int) -> None:
    rows = {"ids": ints(0, wrong), "dy": zeros(2, 2)}
    table = SmallGraph([node("GatherGrad", "shape ids dy", "y")], rows, ["y"], {"shape": ints(3, 2)})
    with pytest.raises(TrainingError, match=f"token {wrong} at place 1 of 'ids': expected an id below 3"):
        table.run(tmp_path)
    losses = {"dloss": zeros(1), "log_p": zeros(2, 3), "ids": ints(2, wrong)}
    made = node("SoftmaxCrossEntropyLossGrad", "dloss log_p ids", "y", ignore_index=-100)
    with pytest.raises(TrainingError, match=f"target {wrong} at place 1 of 'ids': expected an id below 3, or -100"):
        SmallGraph([made], losses, ["y"]).run(tmp_path)


@pytest.fixture(scope="module")
def artifacts() -> Artifacts:
    model = LanguageModelConfig("lstm", V, 4, 5, 1)
    return exported(model, TrainingConfig(minibatch=B, bptt=T, learning_rate=0.5, clip_norm=None))


def window() -> Window:
    random = np.random.default_rng(0)
    return Window(*(random.integers(0, V, (T, B)) for _ in range(2)))


Change = Callable[[onnx.ModelProto], None]


def rename_optimizer(model: onnx.ModelProto) -> None:
    for made in model.graph.node:
        if made.op_type == "SGDOptimizerV2":
            made.op_type = "AdamWOptimizer"


def drop_optimizer(model: onnx.ModelProto) -> None:
    del model.graph.node[:]
    del model.graph.output[:]


def clip_by_another_norm(model: onnx.ModelProto) -> None:
    clip = helper.make_node("InplaceClipGradNorm", ["gradients"], ["clipped"], name="clip", domain="com.microsoft")
    clip.attribute.extend([helper.make_attribute("max_norm", 1.0), helper.make_attribute("norm_type", "inf")])
    model.graph.node.insert(0, clip)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (rename_optimizer, r"\(com.microsoft.AdamWOptimizer\): expected SGDOptimizerV2"),
        (drop_optimizer, "no SGDOptimizerV2"),
        (clip_by_another_norm, r"node 'clip' \(com.microsoft.InplaceClipGradNorm\): attribute 'norm_type'"),
    ],
)
def test_other_optimizers_are_refused(tmp_path: Path, artifacts: Artifacts, change: Change, reason: str) -> None:
    model = onnx.load(artifacts.folder / "optimizer_model.onnx")
    change(model)
    onnx.save(model, tmp_path / "optimizer_model.onnx")
    with pytest.raises(ArtifactsError, match=reason) as refused:
        NativeGraph(artifacts.folder / "training_model.onnx", tmp_path / "optimizer_model.onnx")
    assert str(refused.value).startswith(str(tmp_path / "optimizer_model.onnx"))


@pytest.mark.parametrize("graph", ["training_model.onnx", "training_model_sampled.onnx", "eval_model.onnx"])
def test_graphs_whose_parameters_have_another_shape_are_refused(tmp_path: Path, graph: str) -> None:
    """A row more would be read from behind the tensor."""
    lwf = TrainingConfig(minibatch=2, bptt=2, loss="lwf")
    made = exported(LanguageModelConfig("lstm", V, 4, 6, 1), lwf).folder
    path = Path(shutil.copytree(made, tmp_path / "artifacts")) / graph
    name = "embedding.weight" if graph == "eval_model.onnx" else "teacher.embedding.weight"
    model = onnx.load(path)
    (weight,) = (value for value in model.graph.input if value.name == name)
    weight.type.tensor_type.shape.dim[0].dim_value = V + 1
    onnx.save(model, path)
    artifacts = open_artifacts(tmp_path / "artifacts", verify=False)
    sample = OutputSample(np.arange(V), zeros(V)) if "sampled" in graph else None
    with pytest.raises(ArtifactsError, match=rf"{graph}: input '{name}' .*\[{V + 1},4\].*export the artifacts again"):
        NativeBackend(artifacts, None, BackendOptions(sample=sample)).logits(np.array([[V]]))


@pytest.mark.parametrize(
    ("what", "wrong", "fuse"),
    [("tokens", -2, True), ("tokens", V, False), ("targets", 2**62, True), ("targets", V, False)],
)
def test_ids_out_of_range_change_nothing(artifacts: Artifacts, what: str, wrong: int, fuse: bool) -> None:
    backend, untouched = (NativeBackend(artifacts, None, BackendOptions(), fuse) for _ in range(2))
    before = backend.weights()
    bad = window()
    getattr(bad, what)[1, 1] = wrong
    with pytest.raises(TrainingError, match=rf"{what.removesuffix('s')} {wrong} at place 3.*expected an id below {V}"):
        backend.step(bad, 0.5)
    for name, values in backend.weights().items():
        np.testing.assert_array_equal(values, before[name], name)
    # The recurrent states did not move either: the next step is that of a fresh engine.
    assert backend.step(window(), 0.5) == untouched.step(window(), 0.5)


def test_ids_out_of_range_in_evaluation(artifacts: Artifacts) -> None:
    backend = NativeBackend(artifacts, None, BackendOptions())
    with pytest.raises(TrainingError, match=f"token {V} at place 0"):
        backend.logits(np.array([[V]]))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_are_refused(tmp_path: Path, artifacts: Artifacts, value: float) -> None:
    weights = load_tensors(artifacts.folder / "weights.safetensors")
    weights["decoder.bias"][-1] = value
    save_tensors(tmp_path / "weights.safetensors", weights)
    with pytest.raises(WeightsError, match="tensor decoder.bias: element 11 is (nan|-?inf), expected a finite"):
        NativeBackend(artifacts, tmp_path / "weights.safetensors", BackendOptions())


def test_weights_that_do_not_lie_on_whole_floats_are_refused(tmp_path: Path, artifacts: Artifacts) -> None:
    """The engine works on the mapped file: an Arm CPU may not read a float that begins at an odd byte."""
    content = (artifacts.folder / "weights.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    path = tmp_path / "weights.safetensors"
    path.write_bytes(struct.pack("<Q", length + 1) + content[8 : 8 + length] + b" " + content[8 + length :])
    with pytest.raises(WeightsError, match=r"tensor \S+ begins at byte \d+, expected a multiple of 4"):
        NativeBackend(artifacts, path, BackendOptions())


def test_weights_of_more_tensors_than_the_models_are_refused(tmp_path: Path, artifacts: Artifacts) -> None:
    weights = load_tensors(artifacts.folder / "weights.safetensors") | {"zz.more": zeros(2)}
    save_tensors(tmp_path / "weights.safetensors", weights)
    with pytest.raises(WeightsError, match="6 tensors expected, found 7"):
        NativeBackend(artifacts, tmp_path / "weights.safetensors", BackendOptions())


@pytest.mark.parametrize("fuse", [True, False])
def test_a_loss_that_is_not_finite_changes_no_weight(artifacts: Artifacts, fuse: bool) -> None:
    backend = NativeBackend(artifacts, None, BackendOptions(), fuse)
    assert np.isfinite(backend.step(window(), 3e38))  # from here on sums overflow
    before = backend.weights()
    assert all(np.isfinite(values).all() for values in before.values())
    # At a small rate the update would be lost beside weights this large, whether it was made or not.
    assert not np.isfinite(backend.step(window(), 1e38))
    for name, values in backend.weights().items():
        np.testing.assert_array_equal(values, before[name], name)


@pytest.mark.parametrize(
    ("options", "error", "reason"),
    [
        (BackendOptions(kernels="mmx"), UnsupportedError, "mmx"),
        (
            BackendOptions(precision="bf16", kernels="portable"),
            UnsupportedError,
            "'portable' .* have no bf16 instructions",
        ),
    ],
)
def test_options_out_of_range(
    artifacts: Artifacts, options: BackendOptions, error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        NativeBackend(artifacts, None, options)


@pytest.mark.parametrize("threads", [0, MAX_THREADS + 1])
def test_threads_that_cannot_be(threads: int) -> None:
    with pytest.raises(ValueError, match=f"`threads` is {threads}, expected at least 1, at most {MAX_THREADS}"):
        BackendOptions(threads=threads)


def test_values_of_a_graph_by_wrong_name_or_size(tmp_path: Path) -> None:
    graph = one("Neg", X)
    with NativeGraph(graph.save(tmp_path / "model.onnx")) as opened:
        with pytest.raises(UsageError, match="'z'"):
            opened.set("z", zeros(2, 3))
        with pytest.raises(UsageError, match=r"'x' \[2,3\]: 24 bytes expected, found 12"):
            opened.set("x", zeros(3))
        with pytest.raises(UsageError, match="'z'"):
            opened.get("z")
