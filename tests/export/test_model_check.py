"""A module's forward is held to what its tensors compute."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import phonograd
from tests.support.own_models import RNNModel

WORDS = ["<unk>", "<eos>", *"abcdefghi"]


class Scaled(RNNModel):
    """Embeddings times the root of their size, as some train them."""

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits [T, B, V]."""
        logits: Tensor = self.decoder(self.rnn(self.encoder(tokens) * 2)[0])
        return logits


class WithState(RNNModel):
    """As PyTorch's example: it takes a state, and gives log-probabilities [T x B, V] and the next one."""

    def init_hidden(self, batch: int) -> Tensor:
        """Zeros."""
        return torch.zeros(1, batch, 4)

    def forward(self, tokens: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """Log-probabilities and the state."""
        values, hidden = self.rnn(self.encoder(tokens), hidden)
        return self.decoder(values).flatten(0, 1).log_softmax(-1), hidden


class Odd(RNNModel):
    """It takes what no other does."""

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:  # type: ignore[override]
        """Never called."""
        raise AssertionError


def made(kind: type[RNNModel], cell: str = "gru") -> nn.Module:
    torch.manual_seed(2)
    model = kind(cell, len(WORDS), 4, 4, 1, False)
    for parameter in model.parameters():
        nn.init.uniform_(parameter, -1, 1)
    return model


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("kind", [RNNModel, WithState])
def test_a_model_that_computes_what_its_tensors_do(tmp_path: Path, kind: type[RNNModel], batch_first: bool) -> None:
    model, heard = made(kind), list[str]()
    if batch_first and kind is RNNModel:
        model.rnn.batch_first = True
    phonograd.export_artifacts(model, WORDS, tmp_path / "artifacts", progress=heard.append)
    assert not [line for line in heard if "not compared" in line]
    assert model.training


def test_a_forward_that_does_little_more_is_refused_too(tmp_path: Path) -> None:
    model = made(Scaled)
    for parameter in model.parameters():
        nn.init.uniform_(parameter, -0.05, 0.05)
    with pytest.raises(phonograd.WeightsError, match="its forward computes something else"):
        phonograd.export_artifacts(model, WORDS, tmp_path / "artifacts")


def test_a_forward_that_does_more_is_refused(tmp_path: Path) -> None:
    with pytest.raises(phonograd.WeightsError, match="its forward computes something else .* differ by up to"):
        phonograd.export_artifacts(made(Scaled), WORDS, tmp_path / "artifacts")
    assert not (tmp_path / "artifacts").exists()
    phonograd.export_artifacts(made(Scaled).state_dict(), WORDS, tmp_path / "artifacts")  # nobody can tell


def test_a_forward_that_takes_something_else_is_told(tmp_path: Path) -> None:
    heard: list[str] = []
    phonograd.export_artifacts(made(Odd), WORDS, tmp_path / "artifacts", progress=heard.append)
    assert [line for line in heard if "its forward was not compared" in line]
