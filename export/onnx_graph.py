"""The forward graphs in ONNX, built node by node.

torch's exporter re-slices and re-concatenates every recurrent weight inside the graph; here each parameter enters its
node as it is stored (gates i,o,f,c or z,r,h), so that the gradient graph has no Slice or Concat of weights. A CIFG is
an LSTM with weights made of its own, since ONNX Runtime has no gradient for `input_forget` and no projection. The
native engine knows such a layer by that, and runs it as one (`native/src/graph/coupling`).
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from phonograd.device_runtime.engine.backend import IGNORED
from phonograd.device_runtime.formats.manifest import TEACHER_PREFIX, TEACHER_PROBS, StateTensor, TrainingConfig
from phonograd.device_runtime.formats.model_config import ADAPTER_A, ADAPTER_B, LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import Array

# Opset 15 with IR version 8 is what onnxruntime-training 1.19.2 differentiates without conversion.
OPSET = 15
IR_VERSION = 8
LOSS = "loss"
LOGITS = "logits"
# Inputs of the sampled training graph: the candidates' ids, rising, and what is added to their logits.
CANDIDATES = "candidates"
SHIFTS = "shifts"
# Which words the loss compares with: the next ones; those over an output sample; the probabilities of teachers.
Kind = Literal["full", "sampled", "distill"]


@dataclass
class Graph:
    """A graph under construction; each method adds a node and returns the name of its output.

    trainable, frozen: its parameters; those of a teacher are frozen.
    """

    nodes: list[Any] = field(default_factory=list)
    inputs: list[Any] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    initializers: list[Any] = field(default_factory=list)
    trainable: list[str] = field(default_factory=list)
    frozen: list[str] = field(default_factory=list)
    states: list[StateTensor] = field(default_factory=list)

    def node(self, operator: str, inputs: list[str], output: str, *more_outputs: str, **attributes: Any) -> str:
        """Add an operator, named after its first output."""
        self.nodes.append(helper.make_node(operator, inputs, [output, *more_outputs], name=output, **attributes))
        return output

    def constant(self, name: str, value: Array) -> str:
        """Add a constant (an initializer that is no parameter)."""
        self.initializers.append(numpy_helper.from_array(value, name))
        return name

    def input(self, name: str, dtype: int, shape: list[int | str]) -> str:
        """Add a graph input."""
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def output(self, name: str, dtype: int, shape: list[int | str]) -> None:
        """Declare an existing value a graph output."""
        self.outputs.append(helper.make_tensor_value_info(name, dtype, shape))

    def dropout(self, x: str, probability: float) -> str:
        """Drop values of x; with probability 0 there is no node."""
        if probability == 0:
            return x
        ratio = self.constant(f"{x}.dropout_ratio", np.array(probability, np.float32))
        training = self.constant(f"{x}.dropout_on", np.array(True))
        # The mask must be an output: the gradient reads it.
        return self.node("Dropout", [x, ratio, training], f"{x}.dropped", f"{x}.dropout_mask")

    def model(self, name: str) -> Any:
        """The finished ModelProto. Raises onnx's ValidationError if the graph is malformed (a bug)."""
        graph = helper.make_graph(self.nodes, name, self.inputs, self.outputs, initializer=self.initializers)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="phonograd")
        onnx.checker.check_model(model)
        return model


@dataclass(frozen=True)
class Shape:
    """T and B of a graph: numbers for the training graph (planned ahead), names for the free evaluation graph."""

    steps: int | str
    columns: int | str


def add_language_model(
    graph: Graph,
    config: LanguageModelConfig,
    weights: dict[str, Array],
    shape: Shape,
    dropout: float,
    prefix: str = "",
    frozen: Collection[str] = (),
    sampled: bool = False,
    student: LanguageModelConfig | None = None,
) -> str:
    """Add embedding, recurrent layers and output layer; returns the name of the logits [T·B, V], or [T·B, C] `sampled`.

    `frozen` names tensors that get no gradient, `prefix` a second copy, all of it frozen. Dropout stands where Zaremba
    puts it: on the embedding, between layers, and before the output layer, never on the recurrent connections.
    With adapters, no matrix W + B A is made but the recurrent ones, which their operators take whole. `student`: whose
    teacher this is, with perhaps more words than it; its weights are inputs.
    """
    for name, value in weights.items():
        parameters = graph.frozen if prefix or name in frozen else graph.trainable
        parameters.append(graph.constant(prefix + name, value))
    if student is not None:
        for spec in msgspec.structs.replace(config, vocabulary=student.vocabulary).tensor_specs():
            graph.input(prefix + spec.name, TensorProto.FLOAT, list(spec.shape))
    trained = student or config
    table = words = _Matrix.of(f"{prefix}embedding.weight", config)
    if sampled and (config.tied or trained.tied):
        words = table.of_candidates(graph)
    if trained.tied:
        table = words  # the tokens are places among the candidates too
    x = table.rows(graph, "tokens", f"{prefix}embedded")
    for layer in range(config.layers):
        x = graph.dropout(x, dropout)
        x = _recurrent_layer(graph, config, x, layer, shape, prefix)
    x = graph.dropout(x, dropout)
    flat = graph.constant(f"{prefix}flat_hidden", np.array([-1, config.width], np.int64))
    x = graph.node("Reshape", [x, flat], f"{prefix}hidden")
    return _output_layer(graph, config, x, words, prefix, sampled, trained.vocabulary)


@dataclass(frozen=True)
class _Matrix:
    """A matrix W, or W + B A with an adapter: the names of their values."""

    weight: str
    A: str | None = None
    B: str | None = None

    @classmethod
    def of(cls, name: str, config: LanguageModelConfig) -> "_Matrix":
        return cls(name, name + ADAPTER_A, name + ADAPTER_B) if config.adapters else cls(name)

    def of_candidates(self, graph: Graph) -> "_Matrix":
        return _Matrix(_of_candidates(graph, self.weight), self.A, self.B and _of_candidates(graph, self.B))

    def rows(self, graph: Graph, ids: str, output: str) -> str:
        if self.A is None or self.B is None:
            return graph.node("Gather", [self.weight, ids], output)
        rows = graph.node("Gather", [self.weight, ids], f"{output}.frozen")
        low = graph.node("Gather", [self.B, ids], f"{output}.low")
        return graph.node("Add", [rows, graph.node("MatMul", [low, self.A], f"{output}.adapter")], output)

    def product(self, graph: Graph, x: str, bias: list[str], output: str) -> str:
        """x W^T + (x A^T) B^T + bias."""
        if self.A is not None and self.B is not None:
            low = graph.node("Gemm", [x, self.A], f"{output}.low", transB=1)
            bias = [graph.node("Gemm", [low, self.B, *bias], f"{output}.adapter", transB=1)]
        return graph.node("Gemm", [x, self.weight, *bias], output, transB=1)

    def whole(self, graph: Graph) -> str:
        """A recurrent layer's [1, G·H, I]."""
        if self.A is None or self.B is None:
            return self.weight
        axis = graph.constant(f"{self.weight}.axis", np.array([0], np.int64))
        matrix = graph.node("Squeeze", [self.weight, axis], f"{self.weight}.matrix")
        matrix = graph.node("Gemm", [self.B, self.A, matrix], f"{self.weight}.adapted")
        return graph.node("Unsqueeze", [matrix, axis], f"{self.weight}.whole")


def _recurrent_layer(graph: Graph, config: LanguageModelConfig, x: str, layer: int, shape: Shape, prefix: str) -> str:
    state_inputs, state_outputs = [], []
    state_shape: list[int | str] = [1, shape.columns, config.hidden]
    for state in config.states:
        name = graph.input(f"{prefix}{state}{layer}", TensorProto.FLOAT, state_shape)
        state_inputs.append(name)
        state_outputs.append(f"{name}.next")
        columns = shape.columns if isinstance(shape.columns, int) else 0
        graph.states.append(StateTensor(name, f"{name}.next", (1, columns, config.hidden)))
    weights = [_Matrix.of(f"{prefix}{config.cell}.{layer}.{part}", config).whole(graph) for part in "WR"]
    weights.append(f"{prefix}{config.cell}.{layer}.B")
    projection = ""
    if config.cell == "cifg":
        weights, projection = _coupled_weights(graph, config, weights, f"{prefix}{config.cell}.{layer}.P")
    # linear_before_reset is torch's GRU: the reset gate multiplies R·h + b, not h.
    attributes = {"linear_before_reset": 1} if config.cell == "gru" else {}
    all_steps = graph.node(
        "GRU" if config.cell == "gru" else "LSTM",
        [x, *weights, "", *state_inputs],
        f"{prefix}{config.cell}.{layer}.steps",
        *state_outputs,
        hidden_size=config.hidden,
        **attributes,
    )
    direction_axis = graph.constant(f"{all_steps}.direction_axis", np.array([1], np.int64))
    output = graph.node("Squeeze", [all_steps, direction_axis], f"{prefix}{config.cell}.{layer}.output")
    return graph.node("MatMul", [output, projection], f"{output}.projected") if projection else output


# An LSTM's gates i, o, f, c of a CIFG's i, o, c: f is 1 - i, and 1 - sigmoid(x) is sigmoid(-x).
COUPLED_GATES, COUPLED_SIGNS = (0, 1, 0, 2), (1, 1, -1, 1)


def _coupled_weights(graph: Graph, config: LanguageModelConfig, weights: list[str], P: str) -> tuple[list[str], str]:
    """W, R and B of the LSTM that computes a CIFG, and its projection P^T [H, E]. It is fed back P m: R is R P."""
    axis = graph.constant(f"{P}.direction", np.array([0], np.int64))
    P = graph.node("Squeeze", [_Matrix.of(P, config).whole(graph), axis], f"{P}.projection")
    W, R, B = weights
    W = _four_gates(graph, W, (1, 4 * config.hidden, -1))
    R = graph.node("MatMul", [_four_gates(graph, R, (4 * config.hidden, -1)), P], f"{R}.projected")
    B = _four_gates(graph, B, (1, -1), biases=2)
    R = graph.node("Unsqueeze", [R, axis], f"{R}.whole")
    return [W, R, B], graph.node("Transpose", [P], f"{P}.transposed", perm=[1, 0])


def _four_gates(graph: Graph, rows: str, shape: tuple[int, ...], biases: int = 1) -> str:
    numbers = np.concatenate([np.array(COUPLED_GATES) + 3 * half for half in range(biases)])
    signs = np.array(COUPLED_SIGNS * biases, np.float32)[:, None]
    by_gate = graph.constant(f"{rows}.by_gate", np.array([3 * biases, -1], np.int64))
    gates = graph.node("Reshape", [rows, by_gate], f"{rows}.gates")
    gates = graph.node("Gather", [gates, graph.constant(f"{rows}.numbers", numbers)], f"{rows}.coupled")
    gates = graph.node("Mul", [gates, graph.constant(f"{rows}.signs", signs)], f"{rows}.signed")
    return graph.node("Reshape", [gates, graph.constant(f"{rows}.shape", np.array(shape, np.int64))], f"{rows}.four")


def _of_candidates(graph: Graph, parameter: str) -> str:
    return graph.node("Gather", [parameter, CANDIDATES], f"{parameter}.{CANDIDATES}")


def _output_layer(
    graph: Graph, config: LanguageModelConfig, hidden: str, table: _Matrix, prefix: str, sampled: bool, known: int
) -> str:
    """The logits; `sampled`: of the candidates alone, raised by their shifts.

    A tied model's matrix is `table`, which has the candidates' rows already if sampled. known: how many of a teacher's
    words its student has.
    """
    bias = [f"{prefix}decoder.bias"] if config.output_bias else []
    if config.projected:
        hidden = _Matrix.of(f"{prefix}projection.weight", config).product(graph, hidden, [], f"{prefix}projected")
    if sampled and bias:
        rows = _of_candidates(graph, bias[0])
        bias = [graph.node("Add", [rows, SHIFTS], f"{prefix}decoder.shifted_bias")]
    elif sampled:
        bias = [SHIFTS]
    if known < config.vocabulary:
        bias = [_raise_unknown(graph, config, hidden, bias, "C" if sampled else known)]
    matrix = table if config.tied else _Matrix.of(f"{prefix}decoder.weight", config)
    if sampled and not config.tied:
        matrix = matrix.of_candidates(graph)
    return matrix.product(graph, hidden, bias, prefix + LOGITS)


def _raise_unknown(graph: Graph, config: LanguageModelConfig, hidden: str, bias: list[str], words: int | str) -> str:
    """The bias of a teacher's logits, by which <unk> has the probability of all U words that the student does not know.

    They have a softmax of their own: <unk>'s logit less the log of its share there is the logit of all of them.
    """
    prefix = f"{TEACHER_PREFIX}unknown_"
    rows = graph.input(f"{prefix}rows", TensorProto.FLOAT, ["U", config.embedding if config.tied else config.width])
    logits = [hidden, rows, graph.input(f"{prefix}bias", TensorProto.FLOAT, ["U"])]
    shares = graph.node(
        "LogSoftmax", [graph.node("Gemm", logits, f"{prefix}logits", transB=1)], f"{prefix}shares", axis=1
    )
    first = graph.input(f"{prefix}first", TensorProto.FLOAT, ["U", 1])  # 1 for <unk>, else 0
    share = graph.node("MatMul", [shares, first], f"{prefix}share")
    raised = graph.input(f"{prefix}raised", TensorProto.FLOAT, [words, 1])  # -1 for <unk>, else 0
    return graph.node("Gemm", [share, raised, *bias], f"{prefix}raised_bias", transB=1)


def training_graph(
    config: LanguageModelConfig,
    training: TrainingConfig,
    weights: dict[str, Array],
    frozen: Collection[str] = (),
    kind: Kind = "full",
    teacher: LanguageModelConfig | None = None,
) -> Graph:
    """Model and loss for windows [T, B]: outputs the loss and the next states. `frozen` tensors are not trained.

    `sampled`: the softmax runs over the words of two more inputs, `candidates` [C] and their `shifts` [C], C free;
    targets are places among them, and so are a tied model's tokens. FORMAT.md, "Output sample". `distill`: the input
    `teacher_probs` [T·B, V] replaces the targets, whatever the loss of the other kinds. teacher: of the loss LwF, if it
    is another model, whose words begin with this one's.
    """
    graph = Graph()
    shape = Shape(training.bptt, training.minibatch)
    sampled = kind == "sampled"
    graph.input("tokens", TensorProto.INT64, [shape.steps, shape.columns])
    if kind == "distill":
        graph.input(TEACHER_PROBS, TensorProto.FLOAT, [training.bptt * training.minibatch, config.vocabulary])
    else:
        graph.input("targets", TensorProto.INT64, [shape.steps, shape.columns])
    if sampled:
        graph.input(CANDIDATES, TensorProto.INT64, ["C"])
        graph.input(SHIFTS, TensorProto.FLOAT, ["C"])
    logits = add_language_model(graph, config, weights, shape, training.dropout, frozen=frozen, sampled=sampled)
    if kind == "distill":
        _add_distillation_loss(graph, training, logits)
        return _with_outputs(graph)
    targets = graph.node("Reshape", ["targets", graph.constant("flat", np.array([-1], np.int64))], "flat_targets")
    if training.loss == "lwf":
        student = None if teacher is None else config
        soft = add_language_model(
            graph, teacher or config, {} if student else weights, shape, 0.0, TEACHER_PREFIX, (), sampled, student
        )
        _add_lwf_loss(graph, training, logits, soft, targets)
    else:
        _add_cross_entropy(graph, training, logits, targets)
    return _with_outputs(graph)


def _with_outputs(graph: Graph) -> Graph:
    graph.output(LOSS, TensorProto.FLOAT, [])
    for state in graph.states:
        graph.output(state.output, TensorProto.FLOAT, list(state.shape))
    return graph


def _add_cross_entropy(graph: Graph, training: TrainingConfig, logits: str, targets: str) -> None:
    if training.loss_reduction == "mean":
        graph.node("SoftmaxCrossEntropyLoss", [logits, targets], LOSS, reduction="mean", ignore_index=IGNORED)
        return
    total = graph.node(
        "SoftmaxCrossEntropyLoss", [logits, targets], "summed_loss", reduction="sum", ignore_index=IGNORED
    )
    minibatch = graph.constant("minibatch", np.array(training.minibatch, np.float32))
    graph.node("Div", [total, minibatch], LOSS)


def _add_lwf_loss(graph: Graph, training: TrainingConfig, logits: str, teacher_logits: str, targets: str) -> None:
    """Paper P, eqs. 1-2: -Σ_w y*_w log p(w|θ_u) with y* = λ·1{w = w_t} + (1-λ)·p(w|θ_g), padding left out."""
    hard = graph.node("SoftmaxCrossEntropyLoss", [logits, targets], "hard_sum", reduction="sum", ignore_index=IGNORED)
    log_student = graph.node("LogSoftmax", [logits], "student.log_probabilities", axis=1)
    teacher = graph.node("Softmax", [teacher_logits], f"{TEACHER_PREFIX}probabilities", axis=1)
    products = graph.node("Mul", [teacher, log_student], "soft_products")
    axis = graph.constant("vocabulary_axis", np.array([1], np.int64))
    per_token = graph.node("ReduceSum", [products, axis], "soft_per_token", keepdims=0)
    padding = graph.node("Equal", [targets, graph.constant("ignored", np.array(IGNORED, np.int64))], "is_padding")
    counted = graph.node("Cast", [graph.node("Not", [padding], "is_counted")], "mask", to=TensorProto.FLOAT)
    soft = graph.node("ReduceSum", [graph.node("Mul", [per_token, counted], "soft_masked")], "soft_sum", keepdims=0)
    share = np.array(training.user_share, np.float32)
    hard = graph.node("Mul", [hard, graph.constant("user_share", share)], "hard_part")
    soft = graph.node("Mul", [soft, graph.constant("teacher_share", np.float32(1) - share)], "soft_part")
    total = graph.node("Sub", [hard, soft], "summed_loss")
    if training.loss_reduction == "mean":
        divisor = graph.node("ReduceSum", [counted], "counted_tokens", keepdims=0)
    else:
        divisor = graph.constant("minibatch", np.array(training.minibatch, np.float32))
    graph.node("Div", [total, divisor], LOSS)


def _add_distillation_loss(graph: Graph, training: TrainingConfig, logits: str) -> None:
    """Paper P, eq. 4's student: -Σ_w y*_w log p(w|θ), y* the teachers' probabilities. Padding's are zeros."""
    log_student = graph.node("LogSoftmax", [logits], "student.log_probabilities", axis=1)
    axis = graph.constant("vocabulary_axis", np.array([1], np.int64))
    products = graph.node("Mul", [TEACHER_PROBS, log_student], "soft_products")
    per_token = graph.node("ReduceSum", [products, axis], "soft_per_token", keepdims=0)
    total = graph.node("Neg", [graph.node("ReduceSum", [per_token], "soft_sum", keepdims=0)], "summed_loss")
    if training.loss_reduction == "mean":  # every row that is not padding sums to 1
        divisor = graph.node("ReduceSum", [TEACHER_PROBS], "counted_tokens", keepdims=0)
    else:
        divisor = graph.constant("minibatch", np.array(training.minibatch, np.float32))
    graph.node("Div", [total, divisor], LOSS)


def evaluation_graph(config: LanguageModelConfig, weights: dict[str, Array]) -> Graph:
    """The model alone, T and B free: outputs logits [T·B, V] and the next states."""
    graph = Graph()
    shape = Shape("T", "B")
    graph.input("tokens", TensorProto.INT64, [shape.steps, shape.columns])
    logits = add_language_model(graph, config, weights, shape, dropout=0.0)
    graph.output(logits, TensorProto.FLOAT, ["tokens_in_window", config.vocabulary])
    for state in graph.states:
        graph.output(state.output, TensorProto.FLOAT, [1, shape.columns, config.hidden])
    return graph
