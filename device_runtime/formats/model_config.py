"""The language model's shape, and the tensors that follow from it."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from phonograd.device_runtime.base.documents import Positive
from phonograd.device_runtime.base.settings import Settings
from phonograd.device_runtime.formats.tensor_file import TensorSpec

# What an adapter's two tensors are called, behind the name of its matrix.
ADAPTER_A, ADAPTER_B = ".adapter.A", ".adapter.B"

Cell = Literal["lstm", "gru", "cifg"]
Layers = Annotated[int, Meta(ge=1, le=64)]  # more would take minutes to find out that no phone has the memory
GATES: dict[Cell, int] = {"lstm": 4, "gru": 3, "cifg": 3}


class LanguageModelConfig(Settings, frozen=True):
    """A recurrent word model: embedding, `layers` recurrent layers, output layer over the vocabulary.

    With `tied`, the output layer's weights are the embedding; where the hidden size differs from the embedding size,
    a linear projection [E, H] without bias stands between them. `cifg` is an LSTM whose forget gate is 1 - the input
    gate; each layer has a projection to the embedding size of its own, whose output it is fed back too. With
    `adapters`, their rank, each matrix W acts as W + B A. Raises ValueError for a size out of range, and for adapters
    as wide as the narrowest matrix.
    """

    cell: Cell
    vocabulary: Positive
    embedding: Positive
    hidden: Positive
    layers: Layers
    tied: bool = False
    output_bias: bool = True
    adapters: Annotated[int, Meta(ge=0)] = 0

    def check_together(self) -> None:
        """Raise ValueError for adapters of too high a rank."""
        narrowest = min(self.embedding, self.hidden)
        expected = f"below {narrowest}, the columns of its narrowest matrix; choose a smaller one"
        self.require("adapters", self.adapters < narrowest, expected)

    @property
    def projected(self) -> bool:
        """Whether a projection brings the hidden state to the tied embedding's size."""
        return self.tied and self.embedding != self.width

    @property
    def width(self) -> int:
        """Size of what a recurrent layer outputs, and of what it is fed back: of `cifg` the projection's, E; else H."""
        return self.embedding if self.cell == "cifg" else self.hidden

    @property
    def states(self) -> tuple[str, ...]:
        """Recurrent state names of one layer: h, of `cifg` before its projection, and c, which a GRU has not."""
        return ("h",) if self.cell == "gru" else ("h", "c")

    def layer_input(self, layer: int) -> int:
        """Input size of recurrent layer `layer` (0 is the first)."""
        return self.embedding if layer == 0 else self.width

    def tensor_specs(self) -> list[TensorSpec]:
        """Trainable tensors in file order, float32. Recurrent ones in ONNX layout, G gates i,o,f,c (LSTM), z,r,h (GRU)
        or i,o,c (CIFG).

        W [1, G·H, I], R [1, G·H, width], B [1, 2·G·H] = input bias then recurrent bias; of CIFG the projection P
        [1, E, H]. Behind all of these, of each matrix its adapter's A [R, columns] and B [rows, R], R the rank.
        """
        V, E, H = self.vocabulary, self.embedding, self.hidden
        gates = GATES[self.cell] * H
        shapes: dict[str, tuple[int, ...]] = {"embedding.weight": (V, E)}
        for layer in range(self.layers):
            shapes[f"{self.cell}.{layer}.W"] = (1, gates, self.layer_input(layer))
            shapes[f"{self.cell}.{layer}.R"] = (1, gates, self.width)
            shapes[f"{self.cell}.{layer}.B"] = (1, 2 * gates)
            if self.cell == "cifg":
                shapes[f"{self.cell}.{layer}.P"] = (1, E, H)
        if self.projected:
            shapes["projection.weight"] = (E, H)
        if not self.tied:
            shapes["decoder.weight"] = (V, self.width)
        if self.output_bias:
            shapes["decoder.bias"] = (V,)
        matrices = [(name, shape[-2:]) for name, shape in shapes.items() if _is_matrix(name)]
        for name, (rows, columns) in matrices if self.adapters else ():
            shapes |= {name + ADAPTER_A: (self.adapters, columns), name + ADAPTER_B: (rows, self.adapters)}
        return [TensorSpec(name, "F32", shape) for name, shape in shapes.items()]

    def frozen_by_adapters(self) -> list[str]:
        """Names of the tensors that adapters replace in training, and of the adapters' A; [] without adapters."""
        names = [spec.name for spec in self.tensor_specs()]
        return [name for name in names if name.endswith(ADAPTER_A) or name + ADAPTER_A in names]

    @property
    def plain(self) -> "LanguageModelConfig":
        """The same model without adapters."""
        return msgspec.structs.replace(self, adapters=0)

    @property
    def parameters(self) -> int:
        """Number of trainable parameters."""
        return sum(spec.elements for spec in self.tensor_specs())


def _is_matrix(name: str) -> bool:
    return not name.endswith((".B", ".bias"))
