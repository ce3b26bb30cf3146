"""Every operator of the engine against float64: values, and gradients against central differences."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from phonograd.device_runtime.engine.backend import BackendOptions
from phonograd.device_runtime.engine.c_abi import load_library
from phonograd.device_runtime.engine.graph import NativeGraph
from phonograd.device_runtime.formats.tensor_file import Array, save_tensors
from phonograd.device_runtime.native_build.targets import NATIVE
from tests.native.graphs import SmallGraph, node
from tests.reference.onnx_cells import Values, cifg, gru, lstm

TOLERANCE = 1e-5  # relative Frobenius error
KERNELS = load_library().cpu_info()["kernels"]
RANDOM = np.random.default_rng(11)


@dataclass(frozen=True)
class Case:
    """A graph and its forward values in float64.

    gradients: output of the graph -> the input it is the gradient by, of sum(value * weight of it) over `weighted`:
    value -> the input that weights it.
    """

    graph: SmallGraph
    forward: Callable[[Values], Values]
    gradients: Mapping[str, str] = field(default_factory=dict)
    weighted: Mapping[str, str] = field(default_factory=dict)


def normal(*shape: int, scale: float = 1.0) -> Array:
    return (RANDOM.standard_normal(shape) * scale).astype(np.float32)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


def simple(operator: str, arrays: dict[str, Array], forward: Callable[..., Array], **attributes: object) -> Case:
    """One node over all arrays, in order, no gradient."""
    made = node(operator, " ".join(arrays), "y", **attributes)
    return Case(SmallGraph([made], arrays, ["y"]), lambda v: {"y": forward(*v.values())})


def log_softmax(x: Array) -> Array:
    shifted = x - x.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


def recurrent(cell: str, T: int, B: int, E: int, H: int, bias: bool) -> Case:
    gates = 4 if cell == "LSTM" else 3
    fed = E + 1 if cell == "CIFG" else H  # how wide what is fed back is
    inputs = {
        "x": normal(T, B, E),
        "w": normal(1, gates * H, E, scale=0.7),
        "r": normal(1, gates * H, fed, scale=0.7),
        **({"p": normal(1, fed, H, scale=0.7)} if cell == "CIFG" else {}),
        **({"b": normal(1, 2 * gates * H, scale=0.5)} if bias else {}),
        "h0": normal(1, B, H, scale=0.5),
        "c0": normal(1, B, H),
        "dy": normal(T, B, fed) if cell == "CIFG" else normal(T, 1, B, H),
    }
    b, db = ("b", "db") if bias else ("-", "")
    if cell == "LSTM":
        nodes = [
            node("LSTM", f"x w r {b} - h0 c0", "y h c", hidden_size=H),
            node("LSTMTraining", f"x w r {b} - h0 c0", "yt ht ct cells iofc", hidden_size=H),
            node("LSTMGrad", "x w r - h0 c0 yt cells iofc dy", f"dx dw dr {db}", hidden_size=H),
        ]
    elif cell == "CIFG":
        nodes = [
            node("CIFG", f"x w r {b} - h0 c0 p", "y h c", hidden_size=H),
            node("CIFGTraining", f"x w r {b} - h0 c0 p", "yt ht ct cells ioc mt", hidden_size=H),
            node("CIFGGrad", "x w r - h0 c0 mt cells ioc dy p yt", f"dx dw dr {db or '-'} dp", hidden_size=H),
        ]
    else:
        del inputs["c0"]
        settings = {"hidden_size": H, "linear_before_reset": 1}
        nodes = [
            node("GRU", f"x w r {b} - h0", "y h", **settings),
            node("GRUTraining", f"x w r {b} - h0", "yt ht zrh", **settings),
            node("GRUGrad", f"x w r {b} - h0 yt zrh dy", f"dx dw dr {db}", **settings),
        ]
    states = ["h"] if cell == "GRU" else ["h", "c"]
    projection = ["dp"] if cell == "CIFG" else []
    gradients = {name: name[1:] for name in ("dx", "dw", "dr", *([db] if bias else []), *projection)}
    outputs = ["y", "yt", *states, *(f"{state}t" for state in states), *gradients]

    def forward(v: Values) -> Values:
        values = dict({"LSTM": lstm, "GRU": gru, "CIFG": cifg}[cell](v))
        values["y"] = values["y"][:, 0] if cell == "CIFG" else values["y"]
        return {**values, **{f"{name}t": value for name, value in values.items()}}

    return Case(SmallGraph(nodes, inputs, outputs), forward, gradients, {"y": "dy"})


def cross_entropy(N: int, V: int, reduction: str, ignored: int) -> Case:
    targets = RANDOM.integers(0, V, N)
    targets[1::3] = ignored
    nodes = [
        node("SoftmaxCrossEntropyLoss", "x targets", "loss log_p", reduction=reduction, ignore_index=ignored),
        node("SoftmaxCrossEntropyLossGrad", "dloss log_p targets", "dx", reduction=reduction, ignore_index=ignored),
    ]

    def forward(v: Values) -> Values:
        log_p = log_softmax(v["x"])
        each = -log_p[np.arange(N), np.where(targets == ignored, 0, targets)][targets != ignored]
        return {"loss": np.asarray(each.mean() if reduction == "mean" else each.sum()), "log_p": log_p}

    inputs = {"x": normal(N, V, scale=3), "targets": targets, "dloss": np.array(0.7, np.float32)}
    return Case(SmallGraph(nodes, inputs, ["loss", "log_p", "dx"]), forward, {"dx": "x"}, {"loss": "dloss"})


def softmax(x: Array, logarithm: bool) -> Case:
    prefix = "Log" if logarithm else ""
    nodes = [node(f"{prefix}Softmax", "x", "y", axis=-1), node(f"{prefix}SoftmaxGrad_13", "dy y", "dx", axis=-1)]

    def forward(v: Values) -> Values:
        return {"y": log_softmax(v["x"]) if logarithm else np.exp(log_softmax(v["x"]))}

    return Case(SmallGraph(nodes, {"x": x, "dy": normal(*x.shape)}, ["y", "dx"]), forward, {"dx": "x"}, {"y": "dy"})


def gather(ids: Array, V: int, *rest: int) -> Case:
    nodes = [
        node("Gather", "x ids", "y", axis=0),
        node("Shape", "x", "shape"),
        node("GatherGrad", "shape ids dy", "dx", axis=0),
    ]
    inputs = {"x": normal(V, *rest), "ids": ids, "dy": normal(*ids.shape, *rest)}
    return Case(SmallGraph(nodes, inputs, ["y", "dx"]), lambda v: {"y": v["x"][ids]}, {"dx": "x"}, {"y": "dy"})


def relu() -> Case:
    x = normal(3, 7)
    x[np.abs(x) < 0.01] = 1
    nodes = [node("Relu", "x", "y"), node("ReluGrad", "dy y", "dx"), node("ReluGrad", "dy x", "dx_of_x")]
    inputs = {"x": x, "dy": normal(3, 7)}
    by = {"dx": "x", "dx_of_x": "x"}
    return Case(SmallGraph(nodes, inputs, ["y", *by]), lambda v: {"y": np.maximum(v["x"], 0)}, by, {"y": "dy"})


def gemm(a: bool, b: bool, c: tuple[int, ...] | None, alpha: float, beta: float, N: int = 18) -> Case:
    M, K = 7, 13
    A, B = normal(*((K, M) if a else (M, K))), normal(*((N, K) if b else (K, N)))
    inputs = {"a": A, "b": B, **({} if c is None else {"c": normal(*c)})}

    def forward(v: Values) -> Values:
        addend = beta * v["c"] if c is not None else 0
        return {"y": alpha * (v["a"].T if a else v["a"]) @ (v["b"].T if b else v["b"]) + addend}

    made = node("Gemm", " ".join(inputs), "y", transA=int(a), transB=int(b), alpha=alpha, beta=beta)
    return Case(SmallGraph([made], inputs, ["y"]), forward)


def reduce_sum(shape: tuple[int, ...], axes: tuple[int, ...] | None, keep: int) -> Case:
    constants = {} if axes is None else {"axes": ints(*axes)}
    made = node("ReduceSum", "x" if axes is None else "x axes", "y", keepdims=keep)
    graph = SmallGraph([made], {"x": normal(*shape)}, ["y"], constants)
    return Case(graph, lambda v: {"y": np.asarray(v["x"].sum(axis=axes, keepdims=bool(keep)))})


def change_shape(operator: str, shape: tuple[int, ...], argument: Array, result: tuple[int, ...]) -> Case:
    graph = SmallGraph([node(operator, "x argument", "y")], {"x": normal(*shape)}, ["y"], {"argument": argument})
    return Case(graph, lambda v: {"y": np.broadcast_to(v["x"].reshape(v["x"].shape), shape).reshape(result)})


def expand(shape: tuple[int, ...], wanted: tuple[int, ...]) -> Case:
    graph = SmallGraph([node("Expand", "x wanted", "y")], {"x": normal(*shape)}, ["y"], {"wanted": ints(*wanted)})
    return Case(graph, lambda v: {"y": v["x"] * np.ones(wanted)})


def shape_as_data() -> Case:
    nodes = [node("Shape", "like", "s"), node("Identity", "s", "same"), node("Reshape", "x same", "y")]
    nodes += [node("Identity", "y", "z"), node("Cast", "s", "sizes", to=1)]
    graph = SmallGraph(nodes, {"x": normal(12), "like": normal(3, 4)}, ["y", "z", "s", "sizes"])
    sizes = {"s": ints(3, 4), "sizes": np.array([3, 4])}
    return Case(graph, lambda v: {"y": v["x"].reshape(3, 4), "z": v["x"].reshape(3, 4), **sizes})


BINARY: Mapping[str, Callable[[Array, Array], Array]] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide,
}  # fmt: skip
PAIRS: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((), ()), ((), (2, 3)), ((3, 4), (4,)), ((3, 1), (1, 4)), ((2, 3, 4), (3, 1)), ((2, 1, 4, 1), (3, 1, 5)),
    ((1,), (1, 1, 1)), ((5, 17000), (17000,)), ((40000,), (40000,)), ((17000, 2), (17000, 1)),
)  # fmt: skip


def elementwise_cases() -> dict[str, Case]:
    made: dict[str, Case] = {}
    for operator, function in BINARY.items():
        for a, b in PAIRS if operator in ("Add", "Div") else PAIRS[2:6]:
            arrays = {"a": normal(*a), "b": np.asarray(np.abs(normal(*b)) + np.float32(0.5), np.float32)}
            made[f"{operator} {a} {b}"] = simple(operator, arrays, function)
    for count in (1, 2, 5):
        arrays = {f"x{i}": normal(4, 9) for i in range(count)}
        made[f"Sum of {count}"] = simple("Sum", arrays, lambda *xs: np.sum(xs, axis=0))
    made["Neg"] = simple("Neg", {"x": normal(3, 5)}, np.negative)
    flags = RANDOM.integers(0, 2, (3, 5)).astype(bool)
    made["Not"] = simple("Not", {"x": flags}, np.logical_not)
    for x in (flags, ints(-3, 0, 2**40), normal(2, 3)):
        made[f"Cast {x.dtype}"] = simple("Cast", {"x": x}, lambda v: v, to=1)
    for one in (ints(2), np.array(2, np.int64)):
        made[f"Equal {one.shape}"] = simple("Equal", {"a": RANDOM.integers(0, 4, (3, 7)), "b": one}, np.equal)
    for shape, wanted in (((), (3,)), ((1,), (2, 3)), ((3, 1), (3, 5)), ((2, 1, 4), (2, 3, 4)), ((4,), (1,))):
        made[f"Expand {shape} {wanted}"] = expand(shape, wanted)
    return made


def matrix_cases() -> dict[str, Case]:
    made: dict[str, Case] = {}
    made["Transpose"] = simple("Transpose", {"x": normal(45, 70)}, np.transpose, perm=[1, 0])
    made["MatMul"] = simple("MatMul", {"a": normal(9, 33), "b": normal(33, 20)}, np.matmul)
    for a in (False, True):
        for b in (False, True):
            addends = (None, (18,), (7, 1)) if a == b else ((), (1,), (1, 18), (7, 18))
            for c in addends:
                made[f"Gemm {a} {b} {c}"] = gemm(a, b, c, 1.0, 1.0)
    made["Gemm scaled"] = gemm(True, False, (18,), -0.3, 0.7)
    made["Gemm of a scaled addend"] = gemm(False, False, (7, 18), -0.3, 0.7)
    made["Gemm wide"] = gemm(False, True, (7, 400), -0.3, 1.0, N=400)
    made["MatMul of rows"] = simple("MatMul", {"a": normal(3, 5, 33), "b": normal(33, 20)}, np.matmul)
    rows = {"a": normal(3, 5, 33), "b": normal(20, 33)}
    made["FusedMatMul"] = simple("FusedMatMul", rows, lambda a, b: 0.5 * a @ b.T, transB=1, alpha=0.5)
    for shape, axes in (
        ((3, 4), None), ((3, 4), (0,)), ((3, 4), (1,)), ((2, 3, 4), (0, 1)), ((2, 3, 4), (1,)), ((2, 3, 4), (-1, -2)),
        ((40, 3000), (0,)), ((3, 40000), (1,)), ((), None), ((1, 1), (0, 1)),
    ):  # fmt: skip
        for keep in (0, 1):
            made[f"ReduceSum {shape} {axes} {keep}"] = reduce_sum(shape, axes, keep)
    made["Reshape"] = change_shape("Reshape", (2, 3, 4), ints(0, -1), (2, 12))
    made["Squeeze"] = change_shape("Squeeze", (2, 1, 3, 1), ints(-1, 1), (2, 3))
    made["Unsqueeze"] = change_shape("Unsqueeze", (2, 3), ints(0, -1), (1, 2, 3, 1))
    made["Shape"] = shape_as_data()
    return made


def cases_with_gradients() -> dict[str, Case]:
    made = {"Relu": relu()}
    made["Gather repeated"] = gather(ints(3, 0, 3, 3, 5), 6, 4)
    made["Gather windows"] = gather(RANDOM.integers(0, 9, (7, 5)), 9, 5)
    made["Gather vectors"] = gather(ints(1, 1), 3)
    for logarithm in (False, True):
        for x in (normal(4, 5, scale=3), normal(2, 3, 4), normal(2, 1), normal(1, 700), normal(3, 4) * 1000):
            made[f"Softmax {logarithm} {x.shape} {np.abs(x).max():.1f}"] = softmax(x, logarithm)
    for reduction in ("sum", "mean"):
        for N, V, ignored in ((6, 9, -1), (5, 4, 2), *([(1, 2, -1), (3, 600, -1)] if reduction == "sum" else [])):
            made[f"cross-entropy {reduction} {N} {V} {ignored}"] = cross_entropy(N, V, reduction, ignored)
    for cell in ("LSTM", "GRU", "CIFG"):
        for T, B, E, H in ((1, 1, 1, 1), (3, 2, 3, 5), (4, 9, 5, 10), (2, 12, 3, 18)):
            made[f"{cell} {T} {B} {E} {H}"] = recurrent(cell, T, B, E, H, bias=True)
        made[f"{cell} without biases"] = recurrent(cell, 3, 3, 2, 4, bias=False)
    return made


CASES = {**elementwise_cases(), **matrix_cases(), **cases_with_gradients()}


def difference(found: Array, expected: Array) -> float:
    """Relative Frobenius, of values that are nothing but zero: absolute."""
    size = float(np.linalg.norm(expected.astype(np.float64)))
    return float(np.linalg.norm(found.astype(np.float64) - expected)) / (size or 1.0)


def central_differences(case: Case, values: dict[str, Array], by: str) -> Array:
    """d sum(value * weight) / d values[by], in float64."""

    def total() -> float:
        forward = case.forward(values)
        return sum(float((forward[value] * values[weight]).sum()) for value, weight in case.weighted.items())

    gradient = np.zeros(values[by].shape)
    for place in np.ndindex(values[by].shape):
        there, width = values[by][place], 1e-5
        values[by][place] = there + width
        above = total()
        values[by][place] = there - width
        gradient[place] = (above - total()) / (2 * width)
        values[by][place] = there
    return gradient


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_of_operators(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    exact = {key: a.astype(np.float64) if a.dtype == np.float32 else a for key, a in case.graph.inputs.items()}
    expected = dict(case.forward(exact))
    for output, by in case.gradients.items():
        expected[output] = central_differences(case, exact, by)
    for kernels in KERNELS:
        found = case.graph.run(tmp_path, BackendOptions(threads=3, kernels=kernels))
        assert set(found) <= set(expected)
        for output, values in found.items():
            assert values.shape == expected[output].shape, (output, kernels)
            assert difference(values, expected[output]) <= TOLERANCE, (output, kernels)


@pytest.mark.parametrize("cell", ["LSTM", "GRU", "CIFG"])
def test_the_gradient_reaches_the_first_of_many_steps(tmp_path: Path, cell: str) -> None:
    case = recurrent(cell, 15, 1, 3, 4, bias=True)
    case.graph.inputs["dy"][:-1] = 0
    found = case.graph.run(tmp_path)["dx"]
    exact = {key: a.astype(np.float64) for key, a in case.graph.inputs.items()}
    expected = central_differences(case, exact, "x")
    assert np.abs(expected[0]).max() > 0
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-9)


def test_the_update_takes_a_marked_gradient(tmp_path: Path) -> None:
    inputs = {"w": normal(3, 4), "w_grad.accumulation.buffer": normal(3, 4), "dw": normal(3, 4)}
    graph = SmallGraph([node("InPlaceAccumulatorV2", "w_grad.accumulation.buffer dw", "done")], inputs, ["done"])
    sgd = SmallGraph([node("SGDOptimizerV2", "w rate dw", "updated")], {**inputs, "rate": normal(1)}, [])
    save_tensors(tmp_path / "first", {"w": inputs["w"]})
    model, optimizer = graph.save(tmp_path / "model.onnx"), sgd.save(tmp_path / "optimizer.onnx")
    with NativeGraph(model, optimizer, tmp_path / "first") as trained:
        trained.set("dw", inputs["dw"])
        trained.run(0.5)
        np.testing.assert_allclose(trained.get("w"), inputs["w"] - 0.5 * inputs["dw"], rtol=1e-6, atol=1e-7)


def test_no_operator_of_the_engine_is_left_out() -> None:
    sources = "".join(path.read_text() for path in sorted((NATIVE / "src" / "operators").glob("*.cpp")))
    known = set(re.findall(r'^ +\{"(\w+)", "[\w.]*", \d+, \d+, \d+,', sources, re.MULTILINE))
    assert len(known) > 30
    covered = {made.op_type for case in CASES.values() for made in case.graph.nodes}
    # Those with a test of their own, above or in test_dropout.py.
    assert known - covered == {"Dropout", "DropoutGrad", "InPlaceAccumulatorV2"}
