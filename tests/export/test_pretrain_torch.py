import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from phonograd.device_runtime.base.errors import ArtifactsError, TextError, TrainingError
from phonograd.export import pretrain_torch
from phonograd.export.corpus import Corpus, training_columns
from phonograd.export.pretrain_torch import evaluate, train_step
from phonograd.export.torch_model import LanguageModel
from tests.support.pretraining import CORPUS, MODEL, run
from tests.support.pretraining import TORCH as CONFIG


def test_perplexity_without_and_with_unknown_words() -> None:
    model = LanguageModel(MODEL)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.decoder.bias[0] = 2.0  # logits of every word but <unk> are 0
    share = 1 / (math.exp(2) + 9)
    found = evaluate(model, np.array([1, 2, 0, 3, 2], np.int64), 1, 5)
    assert found.without_unknown == pytest.approx(1 / share, rel=1e-5)
    assert found.with_unknown == pytest.approx(math.exp(-(4 * math.log(share) + 2) / 4), rel=1e-5)


def weights_leave_the_finite_numbers_in(step: int, patch: pytest.MonkeyPatch) -> None:
    """Make weights infinite at this step. With too high a rate rounding would decide when, and which part sees it."""

    def step_and_spoil(model: LanguageModel, *arguments: Any, **named: Any) -> Any:
        trained = train_step(model, *arguments, **named)
        if named["step"] + 1 == step:
            with torch.no_grad():
                model.embedding.weight.fill_(torch.inf)
        return trained

    patch.setattr("phonograd.export.pretrain_torch.train_step", step_and_spoil)


def test_divergence_names_the_step_and_the_learning_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(CONFIG, learning_rate=1.5, clip_norm=None)
    weights_leave_the_finite_numbers_in(2, monkeypatch)
    with pytest.raises(
        TrainingError, match=r"step 3: loss nan .*learning rate is 0\.046875, clip norm None: choose a lower"
    ):
        run(tmp_path / "out", config)
    with pytest.raises(TrainingError, match=r"validation: loss is nan .*choose a lower learning rate"):
        run(tmp_path / "out", replace(config, max_steps=2))
    assert not (tmp_path / "out").exists()


def test_a_validation_text_without_a_prediction_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TextError, match="validation text: at least 2 tokens expected, found 0"):
        run(tmp_path / "out", CONFIG, corpus=Corpus(CORPUS.training, []))


def test_a_step_is_sgd_on_the_loss_summed_over_time_with_its_gradient_clipped() -> None:
    config = replace(CONFIG, dropout=0.0, clip_norm=0.7)
    window = training_columns(CORPUS.training, 4, 5).window(0)
    model, reference = LanguageModel(MODEL, seed=3), LanguageModel(MODEL, seed=3)
    loss, _ = train_step(model, window, model.zero_state(4), config=config, step=0, learning_rate=0.5)

    logits, _ = reference(torch.from_numpy(window[0].copy()), reference.zero_state(4))
    picked = logits.log_softmax(-1).gather(-1, torch.from_numpy(window[1].copy())[..., None])
    summed = -picked.sum(0).mean()
    torch.autograd.backward(summed)
    assert loss == pytest.approx(summed.item() / 5)
    gradients = {name: parameter.grad for name, parameter in reference.named_parameters()}
    norm = sum(float(gradient.square().sum()) for gradient in gradients.values() if gradient is not None) ** 0.5
    assert norm > 0.7  # or clipping would have no part in this test
    for name, parameter in reference.named_parameters():
        gradient = gradients[name]
        assert gradient is not None
        expected = parameter - 0.5 * (0.7 / norm) * gradient
        torch.testing.assert_close(dict(model.named_parameters())[name], expected, rtol=1e-4, atol=1e-6)


def test_dropout_masks_follow_from_the_seed_and_the_steps_number() -> None:
    window = training_columns(CORPUS.training, 4, 5).window(0)

    def loss_at(seed: int, step: int) -> float:
        model = LanguageModel(MODEL, dropout=0.5)
        config = replace(CONFIG, seed=seed)
        return train_step(model, window, model.zero_state(4), config=config, step=step, learning_rate=1.0)[0]

    assert loss_at(3, 1) == loss_at(3, 1)
    assert len({loss_at(3, 1), loss_at(3, 2), loss_at(4, 1)}) == 3
    model = LanguageModel(MODEL, dropout=0.5)
    assert evaluate(model, CORPUS.training, 4, 5) == evaluate(model, CORPUS.training, 4, 5)  # without
    assert model.training


def test_a_device_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(pretrain_torch, "trains_bf16", lambda device: False)
    with pytest.raises(ArtifactsError, match="device is cuda, PyTorch finds none here"):
        pretrain_torch.pick_device(replace(CONFIG, device="cuda"))
    with pytest.raises(ArtifactsError, match="precision is bf16, and this cpu can't train in bfloat16; choose fp32"):
        pretrain_torch.pick_device(replace(CONFIG, precision="bf16"))
    assert pretrain_torch.pick_device(replace(CONFIG, device="auto")).type == "cpu"


def test_each_epoch_begins_with_zero_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zero = []

    def note_state(*arguments: Any, **named: Any) -> Any:
        zero.append(not any(state.any() for state in arguments[2]))
        return train_step(*arguments, **named)

    monkeypatch.setattr(pretrain_torch, "train_step", note_state)
    run(tmp_path / "out", replace(CONFIG, epochs=2))
    assert zero == [True, *[False] * 6] * 2
