"""Own models as files have them: what is told from their tensors, and what is refused, in one line that helps."""

import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from phonograd.device_runtime.base.errors import WeightsError
from phonograd.device_runtime.formats.model_config import Cell, LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import Array, save_tensors
from phonograd.export.model_file import ModelOfStateDict, load_model
from phonograd.export.torch_layout import seeded_weights, to_torch
from phonograd.export.torch_model import LanguageModel
from tests.support.own_models import RNNModel


def save(path: Path, tensors: dict[str, Any], **beside: object) -> Path:
    torch.save({**beside, "state_dict": tensors} if beside else tensors, path)
    return path


def own(cell: Cell = "lstm", tied: bool = False) -> dict[str, Tensor]:
    torch.manual_seed(1)
    return RNNModel(cell, 11, 4, 4, 2, tied).state_dict()


def zeros(*shape: int) -> Tensor:
    return torch.zeros(shape)


def refusal(path: Path, *renames: tuple[str, str], key: str | None = None) -> str:
    with pytest.raises(WeightsError) as refused:
        load_model(path, renames=renames, key=key)
    message = str(refused.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message


def same(found: ModelOfStateDict, expected: ModelOfStateDict) -> None:
    assert found.config == expected.config
    assert list(found.weights) == list(expected.weights)
    for name, array in expected.weights.items():
        np.testing.assert_array_equal(found.weights[name], array)


@pytest.mark.parametrize(
    ("cell", "layers", "embedding", "hidden", "tied", "bias"),
    [("lstm", 2, 4, 4, True, True), ("lstm", 3, 5, 4, False, False), ("gru", 2, 4, 4, False, True)],
)
def test_shape_and_weights_of_pytorchs_example(
    tmp_path: Path, cell: Cell, layers: int, embedding: int, hidden: int, tied: bool, bias: bool
) -> None:
    torch.manual_seed(5)
    mine = RNNModel(cell, 11, embedding, hidden, layers, tied, bias)
    found = load_model(save(tmp_path / "my.pt", mine.state_dict()))
    assert found.config == LanguageModelConfig(cell, 11, embedding, hidden, layers, tied, bias)
    ours = LanguageModel(found.config)
    ours.load(found.weights)
    tokens = torch.randint(0, 11, (6, 3))
    torch.testing.assert_close(ours(tokens, ours.zero_state(3))[0], mine(tokens))


def test_a_projection_is_found_by_the_sizes(tmp_path: Path) -> None:
    config = LanguageModelConfig("lstm", 11, 5, 4, 1, tied=True, output_bias=False)
    state = LanguageModel(config, seed=2).state_dict()
    assert load_model(save(tmp_path / "my.pt", state)).config == config
    state["proj.weight"] = state.pop("projection.weight")
    assert "export it with `renames` proj=projection" in refusal(save(tmp_path / "other.pt", state))


@pytest.mark.parametrize("layout", ["torch", "weights.safetensors"])
def test_our_own_files_are_read_too(tmp_path: Path, layout: str) -> None:
    for config in (
        LanguageModelConfig("lstm", 11, 5, 4, 2),
        LanguageModelConfig("gru", 11, 4, 4, 1, tied=True),
        LanguageModelConfig("cifg", 11, 6, 8, 2, tied=True, output_bias=False),  # 24 rows of 6: like an LSTM of 6
        LanguageModelConfig("cifg", 11, 6, 8, 1),
    ):
        weights = seeded_weights(config, 3)
        path = tmp_path / f"{config.cell}.safetensors"
        save_tensors(path, to_torch(weights, config) if layout == "torch" else weights)
        same(load_model(path), ModelOfStateDict(config, weights, ()))


def test_a_state_dict_may_lie_in_a_checkpoint_or_an_old_file(tmp_path: Path) -> None:
    state = own()
    expected = load_model(save(tmp_path / "my.pt", state))
    same(load_model(save(tmp_path / "checkpoint.pt", state, epoch=3, best=1.5)), expected)
    torch.save({"model": state}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    same(load_model(tmp_path / "old.pt"), expected)
    save_tensors(tmp_path / "my.safetensors", {name: tensor.numpy() for name, tensor in state.items()})
    same(load_model(tmp_path / "my.safetensors"), expected)


def test_other_names_are_mapped(tmp_path: Path) -> None:
    expected = load_model(save(tmp_path / "my.pt", own()))
    wrapped = save(tmp_path / "wrapped.pt", {f"module.model.{name}": tensor for name, tensor in own().items()})
    found = load_model(wrapped)
    same(found, expected)
    assert found.remarks == (f"{wrapped}: module.model.encoder.weight is read as encoder.weight, others likewise",)
    others = {"encoder.": "net.words.", "rnn.": "net.rnns.main.", "decoder.": "lm_head."}
    odd = {
        next(new + n.removeprefix(old) for old, new in others.items() if n.startswith(old)): t for n, t in own().items()
    }
    renames = [("net", ""), ("words", "encoder"), ("rnns.main.", "rnn."), ("lm_head", "decoder")]
    same(load_model(save(tmp_path / "odd.pt", odd), renames=renames), expected)
    one = [("net.", ""), ("words.weight", "embedding.weight"), ("rnns.main", "lstm"), ("lm_head", "decoder")]
    same(load_model(tmp_path / "odd.pt", renames=one), expected)
    message = refusal(tmp_path / "odd.pt", *renames[:2], ("head", "decoder"))
    assert "head to rename expected, found encoder.weight [11, 4], rnns.main.weight_ih_l0 [16, 4]" in message
    assert "rnn.bias_hh_l0 and" in refusal(tmp_path / "my.pt", ("rnn.bias_ih_l0", "x"), ("rnn.bias_hh_l0", "x"))


def test_tied_but_stored_twice(tmp_path: Path) -> None:
    state = own(tied=True)
    state["decoder.weight"] = state["decoder.weight"].clone()
    found = load_model(save(tmp_path / "my.pt", state))
    assert found.config.tied
    assert "decoder.weight equals the embedding" in found.remarks[0]
    state["decoder.weight"][3, 0] += 1
    assert not load_model(save(tmp_path / "my.pt", state)).config.tied
    del state["decoder.weight"]
    assert load_model(save(tmp_path / "my.pt", state)).config.tied


@pytest.mark.parametrize(("dtype", "name"), [(torch.float16, "F16"), (torch.bfloat16, "BF16")])
def test_half_precision_becomes_float32_and_is_told(tmp_path: Path, dtype: torch.dtype, name: str) -> None:
    half = {key: tensor.to(dtype) for key, tensor in own().items()}
    found = load_model(save(tmp_path / "half.pt", half))
    wide = {key: tensor.float() for key, tensor in half.items()}
    same(found, load_model(save(tmp_path / "wide.pt", wide)))
    assert found.remarks == (f"{tmp_path / 'half.pt'}: converted from {name} to float32",)


def test_no_code_of_the_file_is_run(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[object, ...]]:
            return (Path.touch, (tmp_path / "sprung",))

    for zipped in (True, False):
        torch.save({"encoder.weight": Trap()}, tmp_path / "trap.pt", _use_new_zipfile_serialization=zipped)
        assert "without running code; save the model with: torch.save(model.state_dict(), PATH)" in refusal(
            tmp_path / "trap.pt"
        )
    assert not (tmp_path / "sprung").exists()
    torch.save(RNNModel("lstm", 11, 4, 4, 2, tied=False), tmp_path / "module.pt")
    assert "found an object of tests.support.own_models.RNNModel" in refusal(tmp_path / "module.pt")


def test_files_that_are_none(tmp_path: Path) -> None:
    whole = save(tmp_path / "my.pt", own())
    cut = tmp_path / "cut.pt"
    cut.write_bytes(whole.read_bytes()[:-200])
    assert "it is truncated" in refusal(cut)
    torch.save(own(), whole, _use_new_zipfile_serialization=False)
    cut.write_bytes(whole.read_bytes()[:-200])
    assert "cannot be read as a PyTorch file" in refusal(cut)
    cut.write_bytes(b"")
    assert "truncated" in refusal(cut)
    assert "cannot be opened" in refusal(tmp_path / "none.pt")
    assert "cannot be opened" in refusal(tmp_path)
    torch.save([torch.zeros(3)], whole)
    assert "a state dict expected" in refusal(whole)
    assert "found list" in refusal(whole)
    torch.save({"epoch": 3, "net": {}}, whole)
    assert "or a dict with one as state_dict, model_state_dict, model; found epoch, net" in refusal(whole)
    assert "not understood: words list[]; export it without what scores don't need, by `ignore`" in refusal(
        save(whole, {**own(), "words": ["a"]})
    )


def with_changes(**tensors: Tensor | None) -> dict[str, Tensor]:
    state: dict[str, Any] = {**own(), **tensors}
    return {name: tensor for name, tensor in state.items() if tensor is not None}


PLAIN_RNN = nn.RNN(4, 4).state_dict()
TWO_WAYS = nn.LSTM(4, 4, bidirectional=True).state_dict()
PROJECTED = nn.LSTM(4, 8, proj_size=4).state_dict()


@pytest.mark.parametrize(
    ("tensors", "parts"),
    [
        ({"rnn.bias_hh_l1": None}, ["rnn.bias_hh_l1 F32[16] expected, not found", "lstm 2x4, embedding 4, untied, 11"]),
        ({"encoder.weight": None}, ["encoder.weight [V, E]", "found rnn.weight_ih_l0 [16, 4]", "`renames`, OLD=NEW"]),
        ({"head.decoder.weight": zeros(11, 4)}, ["export it with `renames` head.decoder=decoder"]),
        (
            {"lm_head.weight": zeros(11, 4), "lm_head.bias": zeros(11), "decoder.weight": None, "decoder.bias": None},
            ["export it with `renames` lm_head=decoder, where"],
        ),
        ({"words.weight": zeros(11, 4), "decoder.weight": None, "decoder.bias": None}, ["`renames` words=decoder"]),
        (
            {"net.embed.weight": zeros(11, 4), "lm_head.weight": zeros(11, 4), "encoder.weight": None},
            ["export it with `renames` net.embed=encoder `renames` lm_head=decoder"],
        ),
        ({"drop.mask": zeros(3)}, ["drop.mask is not part of the model (1 unexpected)", "drop.mask [3]"]),
        ({"rnn.weight_ih_l0": zeros(16, 5)}, ["F32[16, 4] expected, found rnn.weight_ih_l0 F32[16, 5]"]),
        ({"encoder.weight": zeros(4)}, ["a word-level LSTM or GRU expected", "found encoder.weight [4]"]),
        ({"rnn.weight_hh_l0": zeros(15, 4)}, ["16 rows of an LSTM or 12 of a GRU expected", "[15, 4], neither's"]),
        ({"rnn.weight_hh_l1": zeros(12, 4)}, ["found lstm in layer 0 and gru in layer 1, rnn.weight_hh_l1 [12, 4]"]),
        ({"rnn.weight_hh_l" + 30 * "9": zeros(16, 4)}, ["expected, not found"]),
        ({"projection.weight": zeros(4, 4)}, ["projection.weight is not part", "whose hidden and embedding sizes"]),
        ({"decoder.bias": zeros(11) + math.nan}, ["tensor decoder.bias: element 0 is nan, expected a finite number"]),
        ({"decoder.bias": zeros(11).int()}, ["of F32, F16, BF16, F64 expected, found torch.int32[11]; convert"]),
        ({"decoder.bias": zeros(11).to_sparse()}, ["dense values", "found torch.sparse.FloatTensor[11]"]),
        ({f"rnn.{n}": t for n, t in PLAIN_RNN.items()}, ["rnn.weight_hh_l0 with 16 rows", "[4, 4], a plain RNN's"]),
        ({f"rnn.{n}": t for n, t in TWO_WAYS.items()}, ["one direction expected", "bidirectional=False"]),
        (
            {f"rnn.{n}": t for n, t in PROJECTED.items()} | {"rnn.weight_hh_l0": zeros(32, 8)},
            ["whose weights read its proj_size expected, found rnn.weight_hr_l0 [4, 8]"],
        ),
        ({"rnn.bias_ih_l1": None}, ["rnn.bias_ih_l1", "more than these can't be exported"]),
        ({"layers.0.self_attn.q_proj.weight": zeros(4, 4)}, ["transformers are not supported: LSTM and GRU are"]),
        ({"cells.0.weight_ih": zeros(16, 4)}, ["nn.LSTM or nn.GRU expected, found cells.0.weight_ih, of a stack"]),
    ],
)
def test_models_that_are_none_of_ours(tmp_path: Path, tensors: dict[str, Any], parts: list[str]) -> None:
    message = refusal(save(tmp_path / "my.pt", with_changes(**tensors)))
    for part in parts:
        assert part in message


def test_a_declared_shape_is_held_to(tmp_path: Path) -> None:
    path, config = save(tmp_path / "my.pt", own()), LanguageModelConfig("lstm", 11, 4, 4, 2)
    same(load_model(path, declared=config), load_model(path))
    for change, part in (
        (
            {"vocabulary": 12},
            r"encoder.weight F32\[12, 4\] expected, found encoder.weight F32\[11, 4\]; asked for: lstm",
        ),
        ({"cell": "gru"}, r"rnn.weight_ih_l0 F32\[12, 4\] expected, found rnn.weight_ih_l0 F32\[16, 4\]"),
        ({"layers": 3}, r"rnn.weight_ih_l2 F32\[16, 4\] expected, not found"),
        ({"tied": True}, r"the model is tied, so decoder.weight must equal embedding.weight; 11 rows differ"),
        ({"output_bias": False}, r"decoder.bias is not part of the model"),
    ):
        with pytest.raises(WeightsError, match=part):
            load_model(path, declared=msgspec.structs.replace(config, **change))


def test_a_module_named_after_the_other_cell(tmp_path: Path) -> None:
    named: dict[str, Array] = {name.replace("rnn.", "gru."): tensor.numpy() for name, tensor in own().items()}
    save_tensors(tmp_path / "my.safetensors", named)
    assert "gru.weight_hh_l0 with 12 rows expected" in refusal(tmp_path / "my.safetensors")


class Variant(nn.Module):
    """A model that computes what ours can, in a layout of its own."""

    def __init__(self, kind: str):
        super().__init__()
        listed, biased = kind == "list of modules", kind != "no recurrent biases"
        self.encoder = nn.Embedding(11, 5)
        if listed:
            self.rnns = nn.ModuleList(nn.LSTM(size, 4) for size in (5, 4))
        else:
            self.rnn = nn.LSTM(5, 4, 2, bias=biased)
        self.projection = nn.Linear(4, 5, bias=kind == "projection with bias")
        self.decoder = nn.Linear(5, 11, bias=not listed)
        self.decoder.weight = self.encoder.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits [T, B, V]."""
        values = self.encoder(tokens)
        for layer in self.rnns if hasattr(self, "rnns") else [self.rnn]:
            values = layer(values)[0]
        logits: Tensor = self.decoder(self.projection(values))
        return logits


def normalise(mine: Variant, kind: str) -> None:
    """Put weight_norm on some of its weights: by rows, by columns, and as a whole."""
    weight_norm: Any = nn.utils.parametrizations.weight_norm if "new" in kind else nn.utils.weight_norm
    weight_norm(mine.rnn, "weight_hh_l0")
    weight_norm(mine.rnn, "weight_ih_l1", dim=1)
    weight_norm(mine.projection, dim=None)
    with torch.no_grad():
        for name, tensor in mine.named_parameters():
            if name.endswith(("_g", "original0")):
                tensor *= 1.5  # else the norms are those of the directions


@pytest.mark.filterwarnings("ignore:.*weight_norm")  # the old form's, which checkpoints have
@pytest.mark.parametrize(
    "kind",
    ["list of modules", "no recurrent biases", "projection with bias", "float64", "weight_norm", "new weight_norm"],
)
def test_layouts_that_compute_the_same_are_read_and_told(tmp_path: Path, kind: str) -> None:
    torch.manual_seed(3)
    mine, tokens = Variant(kind), torch.randint(0, 11, (6, 3))
    if kind == "float64":
        mine = mine.double()
    if "weight_norm" in kind:
        normalise(mine, kind)
    found = load_model(save(tmp_path / "my.pt", mine.state_dict()))
    ours = LanguageModel(found.config)
    ours.load(found.weights)
    torch.testing.assert_close(ours(tokens, ours.zero_state(3))[0], mine(tokens).float())
    told = {
        "list of modules": "a list of one-layer modules",
        "no recurrent biases": "recurrent layers without biases",
        "projection with bias": "the projection's bias",
        "float64": "converted from F64 to float32",
        "weight_norm": "rnn.weight_hh_l0 is computed from weight_norm's rnn.weight_hh_l0_g and rnn.weight_hh_l0_v",
        "new weight_norm": "projection.weight is computed from weight_norm's projection.parametrizations.weight.",
    }
    assert told[kind] in " ".join(found.remarks)


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize(
    ("size", "behind", "tied", "hidden_weights"),
    [(3, True, True, "projection.weight"), (5, False, True, "projection.weight"), (3, False, False, "decoder.weight")],
)
def test_an_lstm_with_proj_size_computes_the_same_without(
    tmp_path: Path, size: int, behind: bool, tied: bool, hidden_weights: str
) -> None:
    torch.manual_seed(3)
    encoder, lstm = nn.Embedding(11, 5), nn.LSTM(5, 8, 2, proj_size=size)
    projection = nn.Linear(size, 5) if behind else nn.Identity()
    decoder = nn.Linear(5 if behind or tied else size, 11)
    if tied:
        decoder.weight = encoder.weight
    mine = nn.ModuleDict({"encoder": encoder, "lstm": lstm, "projection": projection, "decoder": decoder})
    found = load_model(save(tmp_path / "my.pt", mine.state_dict()))
    assert found.config == LanguageModelConfig("lstm", 11, 5, 8, 2, tied)
    assert found.weights[hidden_weights].shape[1] == 8
    numbers = f"from {found.config.parameters:,} numbers to train and send in place of "
    assert numbers in " ".join(found.remarks)
    ours, tokens = LanguageModel(found.config), torch.randint(0, 11, (6, 3))
    ours.load(found.weights)
    expected = decoder(projection(lstm(encoder(tokens))[0]))
    torch.testing.assert_close(ours(tokens, ours.zero_state(3))[0], expected)
