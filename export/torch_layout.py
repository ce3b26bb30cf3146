"""Weights between PyTorch's layout and ours (ONNX's), and those of a seed. NumPy only.

PyTorch keeps, per recurrent layer l, `weight_ih_l{l}` [G·H, I], `weight_hh_l{l}` [G·H, H], `bias_ih_l{l}` and
`bias_hh_l{l}` [G·H], gates in the order i,f,g,o (LSTM) or r,z,n (GRU). ONNX has W [1, G·H, I], R [1, G·H, H] and
B [1, 2·G·H], gates i,o,f,c or z,r,h. A CIFG's gates are an LSTM's without f; its projection `weight_hr_l{l}` [E, H] is
P [1, E, H]. All other tensors are the same in both. PyTorch's GRU applies the reset gate
after the recurrent product, ONNX's `linear_before_reset=1`, so that its biases map one to one.
"""

import hashlib
from collections.abc import Mapping

import numpy as np

from phonograd.device_runtime.base.errors import WeightsError
from phonograd.device_runtime.formats.model_config import GATES, Cell, LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import Array, TensorSpec, check_specs, spec_of
from phonograd.device_runtime.text.vocabulary import Vocabulary

# Block k of ONNX's gates is block ONNX_GATES[cell][k] of PyTorch's.
ONNX_GATES: Mapping[Cell, tuple[int, ...]] = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "cifg": (0, 2, 1)}
TORCH_GATES: Mapping[Cell, tuple[int, ...]] = {"lstm": (0, 2, 3, 1), "gru": (1, 0, 2), "cifg": (0, 2, 1)}
_MATRICES: Mapping[str, str] = {"W": "weight_ih", "R": "weight_hh", "P": "weight_hr"}
# Zaremba et al., section 4.1, the medium model: weights are drawn uniformly from [-0.05, 0.05].
INITIAL_RANGE = 0.05
VOCABULARY_SHA256 = "vocabulary_sha256"  # metadata key of a weights file: the vocabulary its rows belong to


def vocabulary_sha256(vocabulary: Vocabulary) -> str:
    """Hex SHA-256 of the vocabulary's file: what a weights file's metadata names it by."""
    return hashlib.sha256(vocabulary.to_bytes()).hexdigest()


def torch_specs(config: LanguageModelConfig) -> list[TensorSpec]:
    """The same tensors as `config.plain.tensor_specs()` in PyTorch's layout and names, float32."""
    specs = []
    for spec in config.plain.tensor_specs():
        if not spec.name.startswith(f"{config.cell}."):
            specs.append(spec)
            continue
        cell, layer, part = spec.name.split(".")
        if part == "B":
            shape = (GATES[config.cell] * config.hidden,)
            specs += [TensorSpec(f"{cell}.{name}_l{layer}", "F32", shape) for name in ("bias_ih", "bias_hh")]
        else:
            specs.append(TensorSpec(f"{cell}.{_MATRICES[part]}_l{layer}", "F32", spec.shape[1:]))
    return specs


def to_canonical(state: Mapping[str, Array], config: LanguageModelConfig, source: str = "weights") -> dict[str, Array]:
    """Canonical tensors, float32 and contiguous, in `plain.tensor_specs()` order, from a PyTorch state dict of arrays.

    Of a tied model the dict may repeat the embedding as `decoder.weight`. `source` names it in errors. Raises
    WeightsError for a missing, unexpected or misshapen tensor, one not float32, or a repeat that differs.
    """
    check_specs(source, {name: spec_of(name, array) for name, array in state.items()}, _expected_specs(state, config))
    if config.tied and "decoder.weight" in state:
        _check_repeat(state, source)
    order = ONNX_GATES[config.cell]
    return {spec.name: _canonical(spec.name, state, order) for spec in config.plain.tensor_specs()}


def to_torch(tensors: Mapping[str, Array], config: LanguageModelConfig, source: str = "weights") -> dict[str, Array]:
    """The inverse of `to_canonical`; a tied model's embedding is not repeated. Raises WeightsError likewise."""
    check_specs(source, {name: spec_of(name, array) for name, array in tensors.items()}, config.tensor_specs())
    order = TORCH_GATES[config.cell]
    state: dict[str, Array] = {}
    for name, array in tensors.items():
        if not name.startswith(f"{config.cell}."):
            state[name] = np.ascontiguousarray(array)
            continue
        cell, layer, part = name.split(".")
        if part == "B":
            for half, bias in zip(("bias_ih", "bias_hh"), np.split(array[0], 2), strict=True):
                state[f"{cell}.{half}_l{layer}"] = _reorder(bias, order)
        else:
            state[f"{cell}.{_MATRICES[part]}_l{layer}"] = array[0] if part == "P" else _reorder(array[0], order)
    return {spec.name: state[spec.name] for spec in torch_specs(config)}


def seeded_weights(config: LanguageModelConfig, seed: int) -> dict[str, Array]:
    """Canonical initial weights: uniform in [-0.05, 0.05), biases zero; the same for a seed on every machine.

    Zaremba et al. say it of the weights; their code draws the biases so too. Raises WeightsError for a negative seed.
    """
    if seed < 0:
        raise WeightsError(f"initial weights: seed is {seed}, expected 0 or more")
    generator = np.random.Generator(np.random.PCG64(seed))
    tensors: dict[str, Array] = {}
    for spec in config.plain.tensor_specs():
        if spec.name.endswith((".B", ".bias")):
            tensors[spec.name] = np.zeros(spec.shape, np.float32)
        else:
            unit = generator.random(spec.shape, np.float32)
            tensors[spec.name] = (unit - np.float32(0.5)) * np.float32(2 * INITIAL_RANGE)
    return tensors


def _expected_specs(tensors: Mapping[str, object], config: LanguageModelConfig) -> list[TensorSpec]:
    specs = torch_specs(config)
    if config.tied and "decoder.weight" in tensors:
        specs.append(TensorSpec("decoder.weight", "F32", (config.vocabulary, config.embedding)))
    return specs


def _check_repeat(state: Mapping[str, Array], source: str) -> None:
    differing = np.flatnonzero((state["decoder.weight"] != state["embedding.weight"]).any(axis=1))
    if differing.size:
        raise WeightsError(
            f"{source}: the model is tied, so decoder.weight must equal embedding.weight; {differing.size} rows "
            f"differ, the first is {differing[0]}; choose an untied model, or leave decoder.weight out"
        )


def _canonical(name: str, state: Mapping[str, Array], order: tuple[int, ...]) -> Array:
    if name in state:
        return np.ascontiguousarray(state[name])
    cell, layer, part = name.split(".")
    if part == "B":
        halves = [_reorder(state[f"{cell}.{half}_l{layer}"], order) for half in ("bias_ih", "bias_hh")]
        return np.concatenate(halves)[np.newaxis]
    weight = state[f"{cell}.{_MATRICES[part]}_l{layer}"]
    return (np.ascontiguousarray(weight) if part == "P" else _reorder(weight, order))[np.newaxis]


def _reorder(gates: Array, order: tuple[int, ...]) -> Array:
    """Block k of the result, along the first dimension [G·H], is block order[k]."""
    return gates.reshape(len(order), -1, *gates.shape[1:])[list(order)].reshape(gates.shape)
