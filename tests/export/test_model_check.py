"""What a user's model computes, the exported artifacts compute too."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import phonograd
from phonograd.export import artifacts as written
from tests.support.own_models import RNNModel

WORDS = ["<unk>", "<eos>", *"abcdefghi"]


class Scaled(RNNModel):
    """Embeddings times the root of their size, as some train them."""

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits [T, B, V]."""
        logits: Tensor = self.decoder(self.rnn(self.encoder(tokens) * 2)[0])
        return logits


class WithState(RNNModel):
    """A model like PyTorch's example: it takes a state, and gives log-probabilities [T x B, V] and the next one."""

    def init_hidden(self, batch: int) -> Tensor:
        """Zeros."""
        return torch.zeros(1, batch, 4)

    def forward(self, tokens: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """Log-probabilities and the state."""
        values, hidden = self.rnn(self.encoder(tokens), hidden)
        return self.decoder(values).flatten(0, 1).log_softmax(-1), hidden


class Odd(RNNModel):
    """A model that takes what no other does."""

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:  # type: ignore[override]
        """Never called."""
        raise AssertionError


def make_model(kind: type[RNNModel], cell: str = "gru") -> nn.Module:
    torch.manual_seed(2)
    model = kind(cell, len(WORDS), 4, 4, 1, False)
    for parameter in model.parameters():
        nn.init.uniform_(parameter, -1, 1)
    return model


@pytest.mark.parametrize(("kind", "batch_first"), [(RNNModel, False), (RNNModel, True), (WithState, False)])
def test_a_model_that_computes_what_its_tensors_do(tmp_path: Path, kind: type[RNNModel], batch_first: bool) -> None:
    model, heard = make_model(kind), list[str]()
    model.rnn.batch_first = batch_first
    phonograd.export_artifacts(model, WORDS, tmp_path / "artifacts", progress=heard.append)
    assert heard[-1] == "comparison with the model"
    assert model.training


def test_a_forward_that_does_more_is_refused(tmp_path: Path) -> None:
    little = make_model(Scaled)
    for parameter in little.parameters():
        nn.init.uniform_(parameter, -0.05, 0.05)
    with pytest.raises(phonograd.WeightsError, match="its forward computes something else"):
        phonograd.export_artifacts(little, WORDS, tmp_path / "artifacts")
    with pytest.raises(phonograd.WeightsError, match="its forward computes something else .* differ by up to"):
        phonograd.export_artifacts(make_model(Scaled), WORDS, tmp_path / "artifacts")
    assert not (tmp_path / "artifacts").exists()
    phonograd.export_artifacts(make_model(Scaled).state_dict(), WORDS, tmp_path / "artifacts")  # nobody can tell


def test_a_forward_that_takes_something_else_needs_another(tmp_path: Path) -> None:
    model, out = make_model(Odd), tmp_path / "artifacts"
    with pytest.raises(phonograd.UsageError, match=r"found TypeError: .*'lengths'; give as `forward` a function"):
        phonograd.export_artifacts(model, WORDS, out)
    with pytest.raises(phonograd.UsageError, match=r"found ValueError: scores of 11 words for each of \[7, 3\] tokens"):
        phonograd.export_artifacts(model, WORDS, out, forward=model.encoder)
    with pytest.raises(phonograd.WeightsError, match="its forward computes something else"):
        phonograd.export_artifacts(model, WORDS, out, forward=lambda tokens: Scaled.forward(model, tokens))
    assert not out.exists()
    phonograd.export_artifacts(model, WORDS, out, forward=lambda tokens: RNNModel.forward(model, tokens))


@pytest.mark.parametrize("checked", [None, ["a b c"]], ids=["onnxruntime", "native"])
def test_what_is_compared_is_what_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checked: list[str] | None
) -> None:
    def call_with_other_weights(function: Any, at: int) -> Any:
        def with_other_weights(*arguments: Any) -> Any:
            weights = {name: array * np.float32(1.01) for name, array in arguments[at].items()}
            return function(*arguments[:at], weights, *arguments[at + 1 :])

        return with_other_weights

    monkeypatch.setattr(
        written, "training_graph", call_with_other_weights(written.training_graph, 2)
    )  # ONNX Runtime's checkpoint
    monkeypatch.setattr(
        written, "save_tensors", call_with_other_weights(written.save_tensors, 1)
    )  # what the native engine reads
    model, out = make_model(RNNModel), tmp_path / "artifacts"
    with pytest.raises(phonograd.WeightsError, match="no artifacts were written"):
        phonograd.export_artifacts(model, WORDS, out, check=checked)
    assert not out.exists()


def test_rows_in_another_order(tmp_path: Path) -> None:
    """More rows, too: words in capitals are merged, here into ones without."""
    theirs = tmp_path / "theirs.txt"
    theirs.write_text("\n".join(["A", *reversed(WORDS)]))
    torch.manual_seed(2)
    model, out = RNNModel("lstm", len(WORDS) + 1, 4, 4, 1, False), tmp_path / "artifacts"
    both: list[phonograd.Evaluation] = []
    hears = {"check": ["a b c x"], "on_check": lambda *found: both.extend(found)}
    phonograd.export_artifacts(model, WORDS, out, trained_with=theirs, **hears)  # type: ignore[arg-type]
    assert [(one.tokens, one.unknown_tokens) for one in both] == [(5, 1), (5, 1)]


class Long(RNNModel):
    """A model that does more in long windows, so that a text shows it."""

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits [T, B, V]."""
        logits = super().forward(tokens)
        return logits * 1.005 if len(tokens) > 10 else logits


@pytest.mark.parametrize("kind", [RNNModel, WithState])
def test_the_perplexity_of_a_text(tmp_path: Path, kind: type[RNNModel]) -> None:
    text, both = ["a b c d e f g h i a c e x"] * 30, list[phonograd.Evaluation]()
    done = phonograd.export_artifacts(
        make_model(kind), WORDS, tmp_path / "artifacts", check=text, on_check=lambda *found: both.extend(found)
    )
    ours, exported = both
    assert (ours.tokens, ours.unknown_tokens) == (exported.tokens, exported.unknown_tokens) == (420, 30)
    assert ours.perplexity == pytest.approx(exported.perplexity, rel=1e-4)
    assert ours.perplexity_with_unknown == pytest.approx(exported.perplexity_with_unknown, rel=1e-4)
    if kind is WithState:  # as the phone evaluates: a forward without a state starts each window afresh
        assert exported == phonograd.evaluate(done, text)


def test_a_forward_that_differs_on_a_text_alone(tmp_path: Path) -> None:
    model, out, both = make_model(Long), tmp_path / "artifacts", list[phonograd.Evaluation]()
    phonograd.export_artifacts(model, WORDS, tmp_path / "unseen")
    with pytest.raises(phonograd.WeightsError, match=r"perplexity [\d.]+, exported [\d.]+, 0.1 % apart allowed"):
        phonograd.export_artifacts(
            model, WORDS, out, check=["a b c d e f g h i"] * 9, on_check=lambda *found: both.extend(found)
        )
    assert 1.001 < both[0].perplexity / both[1].perplexity < 1.005
    assert not out.exists()


def test_words_that_no_text_has_are_told(tmp_path: Path) -> None:
    heard: list[str] = []
    words = [*WORDS[:5], "Don't", "don't", "end.", "@-@", "</s>", "<reserved-1>"]
    phonograd.export_artifacts(make_model(RNNModel), words, tmp_path / "artifacts", progress=heard.append)
    assert heard[0].startswith(
        "warning: vocabulary: 4 of 11 words (36.36%) are unused, as no text is split into them: "
    )
    assert "\"Don't\", 'end.', '@-@'; " in heard[0]
