"""Layouts of a state dict that compute what ours does: made into the one that `model_file` reads, and told."""

import dataclasses
import re
from collections.abc import Mapping

import numpy as np

from phonograd.device_runtime.base.errors import WeightsError
from phonograd.device_runtime.formats.tensor_file import Array, TensorSpec
from phonograd.export.state_dict import StateDict

_OF_A_LIST = re.compile(r"(rnn|lstm|gru)s?\.(\d+)\.((?:weight|bias)_(?:ih|hh))_l0\Z")
_CELL = re.compile(r".*\.(?:weight|bias)_(?:ih|hh)\Z")
_WEIGHTS = re.compile(r"((?:rnn|lstm|gru|cifg)\.)weight_(ih|hh)(_l\d+)\Z")
_ATTENTION = re.compile(r".*(?:attn|attention|transformer|[qkv]_proj)")


def refuse_other_kinds(state: StateDict) -> None:
    """Raise WeightsError for a transformer and for a stack of cells, which no other name would help."""
    if name := next(filter(_ATTENTION.match, state.specs), None):
        raise WeightsError(f"{state.source}: transformers are not supported: LSTM and GRU are; found {name}")
    if name := next(filter(_CELL.match, state.specs), None):
        raise WeightsError(
            f"{state.source}: nn.LSTM or nn.GRU expected, found {name}, of a stack of cells; copy each cell's weights "
            "into one module, where weight_ih_l0 is the first cell's weight_ih, and save that"
        )


def in_our_layout(state: StateDict) -> tuple[StateDict, list[str]]:
    """The same model with one recurrent module, biases, and no bias in its projection; and what was done to it."""
    remarks = []
    joined = {name: _in_one_module(name) for name in state.specs}
    if any(name != new for name, new in joined.items()) and len(set(joined.values())) == len(joined):
        state = state.renamed(joined)
        remarks.append("a list of one-layer modules, read as one of several layers")
    biases = {
        f"{match[1]}bias_{match[2]}{match[3]}": spec.shape[0]
        for name, spec in state.specs.items()
        if (match := _WEIGHTS.match(name)) and spec.shape
    }
    missing = {name: np.zeros(rows, np.float32) for name, rows in biases.items() if name not in state.specs}
    if missing and len(missing) == len(biases):
        state = _with(state, missing)
        remarks.append("recurrent layers without biases, which are zeros here")
    if "projection.bias" in state.specs:
        state = _without_projection_bias(state)
        remarks.append("the projection's bias is part of the decoder's, to which the decoder maps it")
    return state, remarks


def _in_one_module(name: str) -> str:
    match = _OF_A_LIST.match(name)
    return f"{match[1]}.{match[3]}_l{match[2]}" if match else name


def _without_projection_bias(state: StateDict) -> StateDict:
    """W (P h + p) + b = W P h + (W p + b): float64 sums, rounded once."""
    table = next(
        (name for name in ("decoder.weight", "encoder.weight", "embedding.weight") if name in state.specs), None
    )
    bias = state.read("projection.bias").astype(np.float64)
    if table is None or state.specs[table].shape[1:] != bias.shape:
        return state  # the shapes are refused later
    sums = state.read(table).astype(np.float64) @ bias
    if "decoder.bias" in state.specs:
        sums += state.read("decoder.bias")
    return _with(state, {"decoder.bias": sums.astype(np.float32)}, "projection.bias")


def _with(state: StateDict, made: Mapping[str, Array], dropped: str = "") -> StateDict:
    """The state dict with other tensors in place of, or beside, its own."""
    specs = {name: spec for name, spec in state.specs.items() if name != dropped}
    specs |= {name: TensorSpec(name, "F32", array.shape) for name, array in made.items()}
    return dataclasses.replace(state, specs=specs, _read=lambda name: made[name] if name in made else state._read(name))
