"""The conversion is held to ONNX's own equations (tests/reference), not to another use of the same permutation."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

from phonograd.device_runtime.base.errors import WeightsError
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import Array, TensorSpec, save_tensors, write_tensor_file
from phonograd.device_runtime.text.vocabulary import Vocabulary
from phonograd.export.model_file import load_weights
from phonograd.export.torch_layout import (
    VOCABULARY_SHA256,
    seeded_weights,
    to_canonical,
    to_torch,
    torch_specs,
    vocabulary_sha256,
)
from phonograd.export.torch_model import LanguageModel
from tests.reference.onnx_cells import cifg, gru, lstm

LSTM = LanguageModelConfig("lstm", vocabulary=11, embedding=5, hidden=4, layers=2)
GRU = msgspec.structs.replace(LSTM, cell="gru")
TIED = LanguageModelConfig("lstm", vocabulary=11, embedding=5, hidden=4, layers=1, tied=True, output_bias=False)
TIED_GRU = LanguageModelConfig("gru", vocabulary=11, embedding=4, hidden=4, layers=2, tied=True)
CIFG = msgspec.structs.replace(LSTM, cell="cifg")
FIRST_OF_SEED_1 = [-0.002681136131286621, 0.0011821568477898836, 0.025516748428344727]
CONFIGS = pytest.mark.parametrize(
    "config", [LSTM, GRU, TIED, TIED_GRU, CIFG], ids=["lstm", "gru", "tied", "tied-gru", "cifg"]
)


def weights_of(config: LanguageModelConfig) -> dict[str, Array]:
    """Weights without a zero, biases included, so that no exchange of two of them goes unseen."""
    generator = np.random.default_rng(7)
    return {spec.name: generator.normal(0, 0.6, spec.shape).astype(np.float32) for spec in config.tensor_specs()}


def onnx_forward(config: LanguageModelConfig, weights: dict[str, Array], tokens: Array) -> Array:
    """Logits [T, B, V] in float64 by ONNX's equations, from a zero state."""
    tensors = {name: array.astype(np.float64) for name, array in weights.items()}
    zeros = np.zeros((1, tokens.shape[1], config.hidden))
    x = tensors["embedding.weight"][tokens]
    for layer in range(config.layers):
        parts = {
            part.lower(): tensors[f"{config.cell}.{layer}.{part}"]
            for part in "WRBP"
            if f"{config.cell}.{layer}.{part}" in tensors
        }
        x = {"lstm": lstm, "gru": gru, "cifg": cifg}[config.cell]({"x": x, "h0": zeros, "c0": zeros, **parts})["y"][
            :, 0
        ]
    if config.projected:
        x = x @ tensors["projection.weight"].T
    output = tensors["embedding.weight" if config.tied else "decoder.weight"]
    logits: Array = x @ output.T + tensors.get("decoder.bias", np.zeros(config.vocabulary))
    return logits


@CONFIGS
def test_torch_computes_onnxs_equations_with_the_converted_weights(config: LanguageModelConfig) -> None:
    weights, tokens = weights_of(config), np.random.default_rng(3).integers(0, config.vocabulary, (3, 2))
    model = LanguageModel(config)
    model.load(weights)
    logits, state = model(torch.from_numpy(tokens), model.zero_state(2))
    assert logits.shape == (3, 2, config.vocabulary)
    assert [tuple(tensor.shape) for tensor in state] == [(config.layers, 2, config.hidden)] * len(config.states)
    np.testing.assert_allclose(logits.detach().numpy(), onnx_forward(config, weights, tokens), rtol=1e-5, atol=1e-5)


@CONFIGS
def test_conversion_both_ways_gives_the_weights_back(config: LanguageModelConfig) -> None:
    weights = weights_of(config)
    state = to_torch(weights, config)
    assert [(name, array.shape) for name, array in state.items()] == [(s.name, s.shape) for s in torch_specs(config)]
    back = to_canonical(state, config)
    assert list(back) == [spec.name for spec in config.tensor_specs()]
    for name, array in weights.items():
        np.testing.assert_array_equal(back[name], array)
        assert back[name].flags.c_contiguous
        assert back[name].dtype == np.float32


@CONFIGS
def test_a_state_dict_of_torch_itself_is_accepted(config: LanguageModelConfig) -> None:
    model = LanguageModel(config, seed=5)
    state = {name: tensor.numpy() for name, tensor in model.state_dict().items()}  # repeats a tied decoder.weight
    for name, array in seeded_weights(config, 5).items():
        np.testing.assert_array_equal(to_canonical(state, config)[name], array)
        np.testing.assert_array_equal(model.weights()[name], array)


def test_a_tied_decoder_that_differs_from_the_embedding_is_refused() -> None:
    state = to_torch(weights_of(TIED), TIED)
    state["decoder.weight"] = state["embedding.weight"].copy()
    state["decoder.weight"][[3, 6], 0] += 1
    with pytest.raises(WeightsError, match=r"must equal embedding\.weight; 2 rows differ, the first is 3"):
        to_canonical(state, TIED)


def test_bfloat16_is_widened_as_torch_widens_it(tmp_path: Path) -> None:
    weights = weights_of(GRU)
    brief = {name: torch.from_numpy(array).bfloat16() for name, array in weights.items()}
    specs = [TensorSpec(name, "BF16", array.shape) for name, array in weights.items()]
    bits = [tensor.view(torch.uint16).numpy() for tensor in brief.values()]
    write_tensor_file(tmp_path / "brief.safetensors", specs, bits, {})
    for name, array in load_weights(tmp_path / "brief.safetensors", GRU).items():
        np.testing.assert_array_equal(array, brief[name].float().numpy())


def test_weights_of_another_vocabulary_are_refused(tmp_path: Path) -> None:
    ours, other = Vocabulary((b"<unk>", b"<eos>", b"a")), Vocabulary((b"<unk>", b"<eos>", b"b"), "other.txt")
    path = tmp_path / "w.safetensors"
    save_tensors(path, weights_of(LSTM), {VOCABULARY_SHA256: vocabulary_sha256(ours)})
    load_weights(path, LSTM, ours)
    with pytest.raises(WeightsError, match=r"trained with the vocabulary of SHA-256 .*found other\.txt with"):
        load_weights(path, LSTM, other)


def test_seeded_weights_are_uniform_and_a_function_of_the_seed() -> None:
    config = msgspec.structs.replace(LSTM, vocabulary=2000)
    weights = seeded_weights(config, 1)
    matrix = weights["embedding.weight"]
    assert np.abs(matrix).max() <= 0.05
    assert abs(float(matrix.std()) - 0.1 / 12**0.5) < 1e-3
    assert not weights["lstm.0.B"].any()
    assert not weights["decoder.bias"].any()
    np.testing.assert_array_equal(matrix, seeded_weights(config, 1)["embedding.weight"])
    assert (matrix != seeded_weights(config, 2)["embedding.weight"]).any()
    # PCG64's stream is fixed by NumPy: a seed must mean the same model on another machine, years later.
    np.testing.assert_array_equal(matrix[0, :3], np.array(FIRST_OF_SEED_1, np.float32))
    with pytest.raises(WeightsError, match="seed is -1, expected 0 or more"):
        seeded_weights(config, -1)
