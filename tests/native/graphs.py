"""Small ONNX graphs, and their values by the native engine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from phonograd.device_runtime.engine.backend import BackendOptions
from phonograd.device_runtime.engine.graph import NativeGraph
from phonograd.device_runtime.formats.tensor_file import Array

MICROSOFT = "com.microsoft"
# numpy's dtypes as ONNX names them.
TYPES = {
    np.dtype(np.float32): TensorProto.FLOAT,
    np.dtype(np.int64): TensorProto.INT64,
    np.dtype(bool): TensorProto.BOOL,
}


@dataclass(frozen=True)
class SmallGraph:
    """Nodes, the values of their inputs, constants, and the names of the values to be read."""

    nodes: Sequence[Any]
    inputs: Mapping[str, Array]
    outputs: Sequence[str]
    constants: Mapping[str, Array] = field(default_factory=dict)

    def save(self, path: Path) -> Path:
        """Write the ONNX file; unchecked by onnx, because some graphs are wrong on purpose."""
        graph = helper.make_graph(
            list(self.nodes),
            "small",
            [helper.make_tensor_value_info(name, TYPES[a.dtype], list(a.shape)) for name, a in self.inputs.items()],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in self.outputs],
            initializer=[numpy_helper.from_array(a, name) for name, a in self.constants.items()],
        )
        opsets = [helper.make_opsetid("", 15), helper.make_opsetid(MICROSOFT, 1), helper.make_opsetid("phonograd", 1)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
        return path

    def run(self, folder: Path, options: BackendOptions | None = None) -> dict[str, Array]:
        """The outputs, every node run by itself."""
        with NativeGraph(self.save(folder / "model.onnx"), options=options, fuse=False) as graph:
            for name, values in self.inputs.items():
                graph.set(name, values)
            graph.run()
            return {name: graph.get(name) for name in self.outputs}


def node(operator: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    """A node named after its operator; names by blanks, "-" for an input or output left out."""
    domain = (
        "phonograd"
        if operator.startswith("CIFG")
        else MICROSOFT
        if operator.endswith(("Grad", "_13", "Training", "V2", "FusedMatMul"))
        else ""
    )
    names = [["" if name == "-" else name for name in text.split()] for text in (inputs, outputs)]
    return helper.make_node(operator, *names, name=f"the {operator}", domain=domain, **attributes)
