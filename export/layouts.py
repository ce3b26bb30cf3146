"""Layouts of a state dict that compute what ours does: made into the one that `model_file` reads, and told."""

import dataclasses
import re
from collections.abc import Mapping
from math import prod

import numpy as np

from phonograd.device_runtime.base.errors import WeightsError
from phonograd.device_runtime.formats.tensor_file import Array, TensorSpec
from phonograd.export.state_dict import StateDict

_OF_A_LIST = re.compile(r"(rnn|lstm|gru)s?\.(\d+)\.((?:weight|bias)_(?:ih|hh))_l0\Z")
_CELL = re.compile(r".*\.(?:weight|bias)_(?:ih|hh)\Z")
_WEIGHTS = re.compile(r"((?:rnn|lstm|gru|cifg)\.)weight_(ih|hh)(_l\d+)\Z")
_PROJECTION = re.compile(r"((?:rnn|lstm)\.)weight_hr_l(\d+)\Z")  # of nn.LSTM with proj_size
_DIRECTIONS = re.compile(r"(?:(.*\.)?parametrizations\.(.+)\.original1|(.+)_v)\Z")  # of weight_norm, in either form
_RAW = re.compile(r"(.*weight\w*)_raw\Z")  # of WeightDrop in AWD-LSTM
_PACKED = re.compile(r".*\._(?:packed_params|all_weight_values)\b")
_ATTENTION = re.compile(r".*(?:attn|attention|transformer|[qkv]_proj)")


def refuse_other_kinds(state: StateDict) -> None:
    """Raise WeightsError for a transformer, a quantized model and a stack of cells, which no other name would help."""
    if name := next(filter(_PACKED.match, state.specs), None):
        raise WeightsError(
            f"{state.source}: float weights expected, found {name} of a quantized model; save the model as it was "
            "before; for prediction in int8, phonograd quantizes"
        )
    if name := next(filter(_ATTENTION.match, state.specs), None):
        raise WeightsError(f"{state.source}: transformers are not supported: LSTM and GRU are; found {name}")
    if name := next(filter(_CELL.match, state.specs), None):
        raise WeightsError(
            f"{state.source}: nn.LSTM or nn.GRU expected, found {name}, of a stack of cells; copy each cell's weights "
            "into one module, where weight_ih_l0 is the first cell's weight_ih, and save that"
        )


def in_our_layout(state: StateDict) -> tuple[StateDict, list[str]]:
    """The same model with one recurrent module, biases, no bias in its projection, and weights that nothing computes.

    And what was done to it.
    """
    state, remarks = _without_weight_norm(state)
    for raw, plain in [(name, match[1]) for name in state.specs if (match := _RAW.match(name))]:
        copy = f", not {plain} beside it, which may be a dropped copy" if plain in state.specs else ""
        remarks.append(f"{raw} is the weight{copy}")
        state = state.rename({name: plain if name == raw else name for name in state.specs if name != plain})
    joined = {name: _in_one_module(name) for name in state.specs}
    if any(name != new for name, new in joined.items()) and len(set(joined.values())) == len(joined):
        state = state.rename(joined)
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
    folded = _without_proj_size(state)
    if folded is not state:
        was, now = map(_count_numbers, (state, folded))
        remarks.append(
            "its LSTM's proj_size is multiplied, for good, into the weights that read it: they compute the same, from "
            f"{now:,} numbers to train and send in place of {was:,}"
        )
    return folded, remarks


def _without_weight_norm(state: StateDict) -> tuple[StateDict, list[str]]:
    """w = g v / |v|, where the norms are over the dimensions in which g has one element: float64, rounded once."""
    remarks = []
    for name in list(state.specs):
        match = _DIRECTIONS.match(name)
        if match is None:
            continue
        weight = match[3] or (match[1] or "") + match[2]
        lengths = f"{weight}_g" if match[3] else name.removesuffix("1") + "0"
        if lengths not in state.specs:
            continue
        sizes, shape = state.specs[lengths].shape, state.specs[name].shape
        if sizes and (len(sizes) != len(shape) or any(n not in (1, m) for n, m in zip(sizes, shape, strict=True))):
            continue  # such lengths are not weight_norm's
        g, v = (state.read(part).astype(np.float64) for part in (lengths, name))
        over = tuple(axis for axis in range(v.ndim) if not g.ndim or g.shape[axis] == 1)
        with np.errstate(invalid="ignore"):  # of a v of zeros, which is refused as not finite
            folded = g * v / np.sqrt((v * v).sum(over, keepdims=True))
        state = _with(state, {weight: folded.astype(np.float32)}, lengths, name)
        remarks.append(f"{weight} is computed from weight_norm's {lengths} and {name}")
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


def _without_proj_size(state: StateDict) -> StateDict:
    """R (P m) = (R P) m, for all that reads a layer's output P m: float64 products, rounded once."""
    projections = sorted((int(match[2]), match) for match in map(_PROJECTION.match, state.specs) if match)
    made: dict[str, Array] = {}
    for layer, match in projections:
        readers = [f"{match[1]}weight_hh_l{layer}"]
        if layer < projections[-1][0]:
            readers.append(f"{match[1]}weight_ih_l{layer + 1}")
        elif "projection.weight" in state.specs:
            readers.append("projection.weight")
        elif _is_tied(state):
            made["projection.weight"] = state.read(match[0])
        else:
            readers.append("decoder.weight")
        P = state.read(match[0]).astype(np.float64)
        for name in readers:
            if name not in state.specs or state.specs[name].shape[1:] != P.shape[:1]:
                return state  # the shapes are refused later
            made[name] = (state.read(name) @ P).astype(np.float32)
    return _with(state, made, *(match[0] for _, match in projections)) if made else state


def _count_numbers(state: StateDict) -> int:
    repeated = "decoder.weight" if _is_tied(state) else None
    return sum(prod(spec.shape) for name, spec in state.specs.items() if name != repeated)


def _is_tied(state: StateDict) -> bool:
    if "decoder.weight" not in state.specs:
        return True
    table = next((name for name in ("encoder.weight", "embedding.weight") if name in state.specs), "decoder.weight")
    return np.array_equal(state.read("decoder.weight"), state.read(table))


def _with(state: StateDict, made: Mapping[str, Array], *dropped: str) -> StateDict:
    """The state dict with other tensors in place of, or beside, its own."""
    specs = {name: spec for name, spec in state.specs.items() if name not in dropped}
    specs |= {name: TensorSpec(name, "F32", array.shape) for name, array in made.items()}
    return dataclasses.replace(state, specs=specs, _read=lambda name: made[name] if name in made else state._read(name))
