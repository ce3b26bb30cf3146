"""The C++ reader of ONNX files: sees what the onnx package sees, and refuses all that it does not wholly understand."""

import hashlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from phonograd.device_runtime.formats.manifest import TrainingConfig
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from tests.native.formats_tool import refusal, tool
from tests.support.artifacts import exported

ARTIFACTS = 5


def describe(info: Any) -> list[Any]:
    tensor = info.type.tensor_type
    shape = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param for dim in tensor.shape.dim]
    return [info.name, tensor.elem_type, shape if tensor.HasField("shape") else None]


def seen_by_onnx(path: Path) -> Any:
    model = onnx.load(str(path))
    values = {onnx.AttributeProto.FLOAT: "f", onnx.AttributeProto.INT: "i", onnx.AttributeProto.INTS: "ints"}

    def value(attribute: Any) -> Any:
        if attribute.type == onnx.AttributeProto.STRING:
            return attribute.s.decode()
        found = getattr(attribute, values[attribute.type])
        return list(found) if attribute.type == onnx.AttributeProto.INTS else found

    return {
        "ir": model.ir_version,
        "inputs": [describe(info) for info in model.graph.input],
        "outputs": [describe(info) for info in model.graph.output],
        "constants": [
            [
                constant.name,
                constant.data_type,
                list(constant.dims),
                hashlib.sha256(numpy_helper.to_array(constant).tobytes()).hexdigest(),
            ]
            for constant in model.graph.initializer
        ],
        "nodes": [
            [
                node.name,
                node.op_type,
                node.domain,
                list(node.input),
                list(node.output),
                [[attribute.name, value(attribute)] for attribute in node.attribute],
            ]
            for node in model.graph.node
        ],
    }


@pytest.mark.parametrize(
    ("model", "training"),
    [
        (LanguageModelConfig("lstm", 6, 3, 4, 2), TrainingConfig(2, 3, loss="lwf", dropout=0.25)),
        (
            LanguageModelConfig("gru", 6, 3, 4, 1, tied=True),
            TrainingConfig(2, 3, clip_norm=None, loss_reduction="mean"),
        ),
    ],
    ids=["lstm", "gru"],
)
def test_reads_artifacts(model: LanguageModelConfig, training: TrainingConfig) -> None:
    folder = exported(model, training).folder
    paths = sorted(folder.glob("*.onnx"))
    assert len(paths) == 4
    for path, found in zip(paths, tool("onnx", *paths), strict=True):
        assert found == seen_by_onnx(path), path
        assert found["nodes"]
    (inspected,) = tool("manifest", folder)
    assert inspected["model"]["cell"] == model.cell


def small_model() -> Any:
    """y = relu(x W + b), with every kind of constant and attribute and one input that is no tensor."""
    constants = [
        helper.make_tensor("raw", TensorProto.FLOAT, [2, 3], np.arange(6, dtype=np.float32).tobytes(), raw=True),
        helper.make_tensor("floats", TensorProto.FLOAT, [3], [0.5, -2, 1e30]),
        helper.make_tensor("ints", TensorProto.INT64, [2], [-1, 2**62]),
        helper.make_tensor("bools", TensorProto.BOOL, [3], [True, False, True]),
        helper.make_tensor("raw_bools", TensorProto.BOOL, [2], b"\1\0", raw=True),
        helper.make_tensor("scalar", TensorProto.FLOAT, [], [7.0]),
        helper.make_tensor("empty", TensorProto.INT64, [0], []),
    ]
    nodes = [
        helper.make_node("Gemm", ["x", "raw", "floats"], ["xw"], "product", alpha=0.5, transB=0),
        helper.make_node(
            "Odd", ["xw", "", "ints", "bools"], ["odd", ""], domain="com.microsoft", mode="a", axes=[0, -1]
        ),
        helper.make_node("Relu", ["xw"], ["y"], "last"),
    ]
    graph = helper.make_graph(
        nodes,
        "graph",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2]),
            helper.make_tensor_value_info("anything", TensorProto.FLOAT, None),
            helper.make_tensor_sequence_value_info("several", TensorProto.FLOAT, None),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3])],
        constants,
        doc_string="what it is",
        value_info=[helper.make_tensor_value_info("xw", TensorProto.FLOAT, ["N", 3])],
    )
    opsets = [helper.make_opsetid("", 15), helper.make_opsetid("com.microsoft", 1), helper.make_opsetid("ai.odd", 3)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8, producer_name="tests")
    helper.set_model_props(model, {"key": "value"})
    return model


def test_reads_every_kind_of_constant_and_attribute(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(small_model(), str(path))
    assert tool("onnx", path) == [seen_by_onnx(path)]


def varint(value: int) -> bytes:
    out = b""
    value &= 2**64 - 1
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def wire_model(node: bytes = b"", graph: bytes = b"", model: bytes = b"") -> bytes:
    """The smallest model, y = Relu(x), with fields added to its node, graph or model."""
    relu = field(1, b"x") + field(2, b"y") + field(3, b"last") + field(4, b"Relu") + node
    values = field(11, field(1, b"x")) + field(12, field(1, b"y"))
    return field(1, 8) + field(7, field(1, relu) + values + graph) + field(8, field(2, 15)) + model


def test_packed_and_unpacked_lists_are_the_same(tmp_path: Path) -> None:
    run = b"".join(map(varint, [3, -1, 300]))
    packed = field(5, field(1, b"axes") + field(8, run) + field(20, 7))
    unpacked = field(5, field(1, b"axes") + field(8, 3) + field(8, -1) + field(8, 300) + field(20, 7))
    mixed = field(5, field(1, b"axes") + field(8, run[:1]) + field(8, run[1:]) + field(20, 7))
    float_bits = np.array([1, 2], "<f4").tobytes()
    shape = field(1, varint(1) + varint(2))
    typed = field(5, shape + field(2, 1) + field(8, b"c") + field(4, float_bits))
    one_by_one = b"".join(varint(4 << 3 | 5) + float_bits[i : i + 4] for i in (0, 4))
    untyped = field(5, field(1, 1) + field(1, 2) + field(2, 1) + field(8, b"c") + one_by_one)
    paths = []
    for number, (node, graph) in enumerate([(packed, typed), (unpacked, untyped), (mixed, typed)]):
        paths.append(tmp_path / str(number))
        paths[-1].write_bytes(wire_model(node, graph))
    first, *others = tool("onnx", *paths)
    assert first["nodes"][0][5] == [["axes", [3, -1, 300]]]
    assert first["constants"] == [["c", 1, [1, 2], hashlib.sha256(float_bits).hexdigest()]]
    assert others == [first, first]


def attribute(*fields: bytes) -> bytes:
    return field(5, b"".join([field(1, b"a"), *fields]))


def constant(shape: list[int], *fields: bytes, data_type: int = 1) -> bytes:
    return field(5, b"".join([*(field(1, n) for n in shape), field(2, data_type), field(8, b"c"), *fields]))


F32, DOUBLED = field(9, b"\0\0\0\0"), field(9, b"\0\0\0\0") + field(4, b"\0\0\0\0")

HOSTILE: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "model: IR version 0, expected 3 to 13"),
    "text": (b"hello, this is no model", "m.onnx: model: "),
    "no graph": (field(1, 8), "model: no graph"),
    "old IR": (field(1, 2) + wire_model()[2:], "IR version 2"),
    "new IR": (field(1, 14) + wire_model()[2:], "IR version 14"),
    "two graphs": (wire_model() + field(7, b""), "field 7 appears twice"),
    "functions": (wire_model(model=field(25, b"")), "model: field 25 is unknown"),
    "training info": (wire_model(model=field(20, b"")), "model: field 20 is unknown"),
    "unknown field": (wire_model(model=field(1000, 1)), "model: field 1000 is unknown"),
    "field 0": (wire_model(model=b"\0\0"), "field number 0 is out of range"),
    "field of 33 bits": (wire_model(model=varint(1 << 33) + b"\0"), "is out of range"),
    "group": (wire_model(model=b"\x0b\x0c"), "wire type 3"),
    "long varint": (wire_model(model=b"\x28" + b"\xff" * 9 + b"\x02"), "more than 64 bits"),
    "varint cut": (wire_model(model=b"\x28\xff"), "ends within a number"),
    "length past the end": (wire_model(model=b"\x32\x05abcd"), r"ends within field 6 \(5 bytes announced, 4 left\)"),
    "huge length": (wire_model(model=b"\x32" + varint(2**64 - 1)), "ends within field 6"),
    "graph as number": (field(1, 8) + field(7, 1), "field 7 is not a text or message"),
    "IR as text": (field(1, b"8"), "field 1 is not a whole number"),
    "old opset": (wire_model(model=field(8, field(1, b"ai.onnx") + field(2, 11))), "version 11 of the standard"),
    "two opsets": (wire_model(model=field(8, field(2, 15))), 'domain "" appears twice'),
    "new com.microsoft": (
        wire_model(model=field(8, field(1, b"com.microsoft") + field(2, 2))),
        "version 2 of com.micro",
    ),
    "domain without opset": (
        wire_model(field(7, b"com.microsoft")),
        'node 0, Relu "last": domain "com.micros.*no opset',
    ),
    "sparse constant": (wire_model(graph=field(15, b"")), "graph: field 15 is unknown"),
    "quantization": (wire_model(graph=field(14, b"")), "graph: field 14 is unknown"),
    "no operator": (wire_model(graph=field(1, field(2, b"z"))), "node 1: no operator"),
    "overload": (wire_model(field(8, b"f")), 'node 0, Relu "last": field 8 is unknown'),
    "two operators": (wire_model(field(4, b"Exp")), "field 4 appears twice"),
    "sub-graph": (
        wire_model(attribute(field(6, b""), field(20, 5))),
        'node 0, Relu "last": attribute: field 6 is unknown',
    ),
    "tensor attribute": (wire_model(attribute(field(5, b""), field(20, 4))), "attribute: field 5 is unknown"),
    "reference": (wire_model(attribute(field(21, b"r"), field(20, 1))), "attribute: field 21 is unknown"),
    "attribute without type": (wire_model(attribute(field(3, 1))), 'attribute "a": type 0, expected 1'),
    "list of floats": (wire_model(attribute(field(20, 6))), 'attribute "a": type 6'),
    "attribute of two values": (wire_model(attribute(field(3, 1), field(4, b"x"), field(20, 2))), "two values"),
    "value of another type": (wire_model(attribute(field(4, b"x"), field(20, 2))), "not of its type"),
    "attribute without name": (wire_model(field(5, field(20, 2))), "no name"),
    "attribute twice": (wire_model(attribute(field(20, 2)) * 2), 'attribute "a" appears twice'),
    "float as number": (wire_model(attribute(field(2, 1), field(20, 1))), "field 2 is not a float"),
    "many attributes": (
        wire_model(b"".join(field(5, field(1, b"%d" % n) + field(20, 2)) for n in range(65))),
        "more than 64 attributes",
    ),
    "many nodes": (wire_model(graph=field(1, field(4, b"A")) * 65536), "more than 65536 nodes"),
    "input not produced": (wire_model(field(1, b"z")), 'node 0, Relu "last": input "z" is not produced before'),
    "input from later": (
        wire_model(field(1, b"z"), field(1, field(2, b"z") + field(4, b"Exp"))),
        'input "z" is not produced before',
    ),
    "own output": (wire_model(field(1, b"y")), 'input "y" is not produced before'),
    "produced twice": (wire_model(field(2, b"y")), 'node 0, Relu "last": value "y" is produced twice'),
    "overwrites an input": (wire_model(field(2, b"x")), 'value "x" is produced twice'),
    "input twice": (wire_model(graph=field(11, field(1, b"x"))), 'inputs: value "x" is produced twice'),
    "constant and input": (
        wire_model(graph=field(11, field(1, b"c")) + constant([1], F32)),
        'constants: value "c" is produced twice',
    ),
    "output not produced": (wire_model(graph=field(12, field(1, b"z"))), 'output "z" is not produced'),
    "output twice": (wire_model(graph=field(12, field(1, b"y"))), 'output "y" appears twice'),
    "input without name": (wire_model(graph=field(11, b"")), "input 1: no name"),
    "double input": (
        wire_model(graph=field(11, field(1, b"z") + field(2, field(1, field(1, 11))))),
        "input 1: data type 11, expected 1",
    ),
    "negative dimension": (
        wire_model(graph=field(11, field(1, b"z") + field(2, field(1, field(2, field(1, field(1, -1))))))),
        "dimension: size -1",
    ),
    "dimension twice": (
        wire_model(
            graph=field(11, field(1, b"z") + field(2, field(1, field(2, field(1, field(1, 1) + field(2, b"n"))))))
        ),
        "both a size and a name",
    ),
    "many dimensions": (
        wire_model(graph=field(11, field(1, b"z") + field(2, field(1, field(2, field(1, b"") * 9))))),
        "more than 8 dimensions",
    ),
    "map input": (wire_model(graph=field(11, field(1, b"z") + field(2, field(5, b"")))), "input 1: field 5 is unknown"),
    "two types": (
        wire_model(graph=field(11, field(1, b"z") + field(2, field(1, b"") + field(4, b"")))),
        "input 1: two types",
    ),
    "constant without name": (wire_model(graph=field(5, field(2, 1) + F32)), "no name"),
    "constant without type": (wire_model(graph=field(5, field(8, b"c") + F32)), 'constant 0 "c": no data type'),
    "half constant": (wire_model(graph=constant([1], data_type=10)), "constant 0: data type 10, expected 1"),
    "external data": (wire_model(graph=constant([1], field(13, b""))), "constant 0: field 13 is unknown"),
    "external location": (wire_model(graph=constant([1], field(14, 1))), "external data"),
    "segment": (wire_model(graph=constant([1], field(3, b""))), "constant 0: field 3 is unknown"),
    "values too short": (wire_model(graph=constant([2], F32)), "8 bytes of values expected from its shape, found 4"),
    "no values": (wire_model(graph=constant([2])), "8 bytes of values expected from its shape, found 0"),
    "too many values": (wire_model(graph=constant([], F32 * 1, field(9, b""))), "field 9 appears twice"),
    "values twice": (wire_model(graph=constant([1], DOUBLED)), "it has two fields of values"),
    "values of another type": (wire_model(graph=constant([1], field(7, b"\1"))), "values of another data type"),
    "half a float": (wire_model(graph=constant([1], field(4, b"\0\0\0"))), "cut within a float"),
    "negative size": (wire_model(graph=constant([-1], F32)), "size -1 in its shape"),
    "overflowing shape": (wire_model(graph=constant([1 << 62, 1 << 62], F32)), "a shape of more than 2.64 bytes"),
    "shape that wraps to 0": (wire_model(graph=constant([1 << 62])), "a shape of more than 2.64 bytes"),
    "nine dimensions": (wire_model(graph=constant([1] * 9, F32)), "more than 8 dimensions"),
    "truth of 2": (wire_model(graph=constant([1], field(9, b"\2"), data_type=9)), "neither 0 nor 1"),
    "truth of 256": (wire_model(graph=constant([1], field(5, 256), data_type=9)), "neither 0 nor 1"),
}


def test_the_smallest_model_is_read(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(wire_model())
    assert tool("onnx", tmp_path / "m.onnx") == [seen_by_onnx(tmp_path / "m.onnx")]


@pytest.mark.parametrize("name", HOSTILE)
def test_refuses(tmp_path: Path, name: str) -> None:
    content, message = HOSTILE[name]
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    found = refusal("onnx", path, ARTIFACTS)
    assert found.startswith(f"{path}: ")
    assert re.search(message, found), found


def test_refuses_what_cannot_be_read_or_is_too_large(tmp_path: Path) -> None:
    assert "cannot be opened: No such file" in refusal("onnx", tmp_path / "absent", ARTIFACTS)
    assert "a file expected, found a folder" in refusal("onnx", tmp_path, ARTIFACTS)
    with (tmp_path / "large").open("wb") as file:
        file.truncate((16 << 20) + 1)
    assert "larger than the limit of 16777216 bytes" in refusal("onnx", tmp_path / "large", ARTIFACTS)


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    whole = wire_model(attribute(field(8, b"\1\2"), field(20, 7)), constant([1], F32))
    cuts = [tmp_path / f"cut{length}" for length in range(len(whole))]
    for length, path in enumerate(cuts):
        path.write_bytes(whole[:length])
    assert [found.get("status") for found in tool("onnx", *cuts)] == [ARTIFACTS] * len(cuts)
