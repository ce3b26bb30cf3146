"""Checkpoints as people have them: with other tensors, wrapped, nested, of other kinds; and hostile ones."""

import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from phonograd.device_runtime.formats.tensor_file import save_tensors
from phonograd.export.model_file import load_model
from tests.export.test_model_file import own, refusal, same, save, zeros
from tests.support.own_models import RNNModel

WRAPPED = {name.replace("rnn.", "rnn.module."): tensor for name, tensor in own().items()}
FOREIGN = {
    "criterion.weight": torch.ones(11),
    "n_averaged": torch.tensor(3),
    "words": ["a"],
    "drop": torch.ones(2).int(),
}


@pytest.mark.parametrize(
    "state",
    [
        {f"model.{name}": tensor for name, tensor in own().items()},
        {f"module.{name}": tensor for name, tensor in WRAPPED.items()},
        {
            name.replace("rnn.", "rnn._orig_mod."): tensor
            for name, tensor in {**own(), "rnn.total_ops": zeros()}.items()
        },
        {f"{int('decoder' in name)}.{name}": tensor for name, tensor in WRAPPED.items()},  # an nn.Sequential
    ],
    ids=["lightning", "module", "compiled", "sequential"],
)
def test_tensors_of_others_beside_the_models(tmp_path: Path, state: dict[str, Any]) -> None:
    expected = load_model(save(tmp_path / "my.pt", own()))
    path = save(tmp_path / "mixed.pt", {**FOREIGN, **state})
    message = refusal(path)
    assert "not understood: criterion.weight [11], n_averaged torch.int64[], words list[], drop torch.int32" in message
    assert "found: encoder.weight [11, 4]" not in message  # the foreign ones come first, and the model's have its names
    assert "encoder.weight [11, 4], rnn.weight_ih_l0 [16, 4]" in message
    found = load_model(path, ignore=["criterion.*", "n_*", "words", "drop", "rnn.total_*"])
    same(found, expected)
    assert found.remarks[-1].startswith(f"{path}: left out: criterion.weight, n_averaged, words, drop")


def test_two_models_in_a_file(tmp_path: Path) -> None:
    both = {f"{place}.{name}": tensor for place in ("model", "ema") for name, tensor in own().items()}
    path = save(tmp_path / "my.pt", both)
    assert "found recurrent layers in ema and in model; leave one out with `ignore`, such as 'model.*'" in refusal(path)
    same(load_model(path, ignore=["ema.*"]), load_model(save(tmp_path / "one.pt", own())))
    both = {f"{place}.{name}": tensor for place in "01" for name, tensor in own().items()}
    assert "0.encoder.weight would be called 'encoder.weight'" in refusal(save(path, both))


@pytest.mark.parametrize(
    ("content", "key", "told"),
    [
        ({"model": {"state_dict": own(), "step": 3}, "opt": {0: [zeros(3)]}}, "model.state_dict", "model"),
        ([{"lr": 0.1}, own()], "1", "list of dict, OrderedDict"),
        ({"runs": [3, {"best.pt": own()}]}, "runs.1.best.pt", "runs"),
    ],
)
def test_a_state_dict_lies_deeper(tmp_path: Path, content: object, key: str, told: str) -> None:
    expected = load_model(save(tmp_path / "my.pt", own()))
    path = tmp_path / "nested.pt"
    torch.save(content, path)
    assert f"found {told}" in refusal(path)
    assert f"; weights lie at {key}: choose with `key`" in refusal(path)
    assert f"one at 'model.none'; found {told}" in refusal(path, key="model.none")
    same(load_model(path, key=key), expected)
    torch.save(list(own().items()), path)  # named_parameters()
    same(load_model(path), expected)


def test_a_safetensors_file_has_no_keys(tmp_path: Path) -> None:
    save_tensors(tmp_path / "my.safetensors", {name: tensor.numpy() for name, tensor in own().items()})
    assert "leave out `key`" in refusal(tmp_path / "my.safetensors", key="model")


def test_strides_that_ask_for_more_than_is_stored(tmp_path: Path) -> None:
    huge = torch.zeros(1).expand(1 << 20, 1 << 20)
    path = save(tmp_path / "my.pt", {**own(), "encoder.weight": huge, "decoder.weight": huge})
    assert f"encoder.weight [1048576, 1048576]: {1 << 42} bytes expected, its storage holds 4" in refusal(path)


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b"\x89HDF\r\n\x1a\n" + bytes(9), ["found an HDF5 file", "torch.save(model.state_dict(), PATH)"]),
        (b"\x08\x08\x12\x07pytorch\x1a\x051.13", ["found an ONNX model"]),
        (b'{"weight_map": {}}', ["found JSON, such as the index of a model in several files"]),
        (pickle.dumps({"a": [1, 2]}), ["found a pickle"]),
        ("<unk>\n<eos>\nÄrger\n".encode(), ["found text"]),
        ("\ufeffÄÖÜ äöü é".encode(), ["found text"]),
    ],
)
def test_files_of_other_kinds_are_named(tmp_path: Path, content: bytes, parts: list[str]) -> None:
    path = tmp_path / "my.pt"
    path.write_bytes(content)
    for part in ["a PyTorch state dict or a safetensors file expected", *parts]:
        assert part in refusal(path)


def test_zip_files_of_others_are_named(tmp_path: Path) -> None:
    path = tmp_path / "my.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its age; reading the file gives none
        torch.jit.trace(RNNModel("lstm", 11, 4, 4, 1, tied=False), torch.zeros(3, 2).long()).save(str(path))
    assert "found a TorchScript model; save its tensors with: torch.save(torch.jit.load(PATH)" in refusal(path)
    with path.open("wb") as file:
        np.savez(file, embedding=zeros(3).numpy())
    assert "found a zip file of 'embedding.npy'" in refusal(path)


@pytest.mark.filterwarnings("ignore")  # torch's plans for what makes such models
@pytest.mark.parametrize(
    ("parts", "told"),
    [({nn.Linear}, "found decoder._packed_params.dtype of a"), ({nn.LSTM}, "torch.ScriptObject (of a")],
)
def test_quantized_models_are_named(tmp_path: Path, parts: set[Any], told: str) -> None:
    mine = torch.ao.quantization.quantize_dynamic(RNNModel("lstm", 11, 4, 4, 1, tied=False), parts)
    assert f"{told} quantized model" in refusal(save(tmp_path / "my.pt", mine.state_dict()))


@pytest.mark.parametrize("beside", [True, False])
def test_a_dropped_copy_beside_the_weight_is_not_read(tmp_path: Path, beside: bool) -> None:
    state, expected = own(), load_model(save(tmp_path / "plain.pt", own()))
    state["rnn.weight_hh_l0_raw"] = state.pop("rnn.weight_hh_l0")
    copy = {"rnn.weight_hh_l0": zeros(16, 4)} if beside else {}
    found = load_model(save(tmp_path / "my.pt", {**state, **copy}))
    same(found, expected)
    assert "rnn.weight_hh_l0_raw is the weight" in found.remarks[0]
    assert ("rnn.weight_hh_l0 beside it, which may be a dropped copy" in found.remarks[0]) == beside
