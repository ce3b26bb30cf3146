import dataclasses
import math
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from phonograd.device_runtime.base.errors import ArtifactsError, TextError, TrainingError, VocabularyError
from phonograd.device_runtime.formats.model_config import Cell, LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import TensorFile
from phonograd.device_runtime.text.vocabulary import Vocabulary
from phonograd.export import pretrain_step
from phonograd.export.corpus import Corpus, evaluation_columns, load_corpus, training_columns
from phonograd.export.interrupts import deferred_interrupt
from phonograd.export.model_file import load_weights
from phonograd.export.pretrain import PretrainProgress, PretrainResult, pretrain
from phonograd.export.pretrain_config import PretrainConfig
from phonograd.export.pretrain_state import STATE
from phonograd.export.pretrain_step import evaluate, train_step
from phonograd.export.torch_layout import VOCABULARY_SHA256, vocabulary_sha256
from phonograd.export.torch_model import LanguageModel
from tests.support.margins import Margin

WORDS = Vocabulary((b"<unk>", b"<eos>", b"the", b"cat", b"sat", b"on", b"mat", b"dog", b"ran", b"home"))
MODEL = LanguageModelConfig("lstm", vocabulary=10, embedding=12, hidden=12, layers=2)
CONFIG = PretrainConfig(minibatch=4, bptt=5, epochs=4, dropout=0.2, device="cpu", seed=3, checkpoint_steps=3)
MESSAGES = [b"the cat sat on the mat", b"the dog ran home"] * 12  # 11 tokens the pair: 132, 6 windows and a short one
CORPUS = Corpus(WORDS.encode(MESSAGES), WORDS.encode(MESSAGES[:4]))


class Recorder:
    """A progress callback that keeps what it is told and may interrupt after some steps."""

    def __init__(self, interrupt_after: int | None = None):
        self.steps: list[PretrainProgress] = []
        self.evaluations: list[PretrainProgress] = []
        self.interrupt_after = interrupt_after

    def __call__(self, progress: PretrainProgress) -> None:
        (self.evaluations if progress.loss is None else self.steps).append(progress)
        if progress.loss is not None and len(self.steps) == self.interrupt_after:
            raise KeyboardInterrupt

    @property
    def losses(self) -> list[float]:
        return [progress.loss for progress in self.steps if progress.loss is not None]


def run(
    out: Path,
    config: PretrainConfig = CONFIG,
    state: Path | None = None,
    recorder: Recorder | None = None,
    *,
    corpus: Corpus = CORPUS,
    model: LanguageModelConfig = MODEL,
) -> PretrainResult:
    return pretrain(model, WORDS, corpus, config, out, state_folder=state, progress=recorder or Recorder())


@pytest.mark.learns
def test_the_loss_falls_and_the_best_weights_are_kept(tmp_path: Path, margin: Margin, seed: int) -> None:
    out, recorder = tmp_path / "base.safetensors", Recorder()
    model = msgspec.structs.replace(MODEL, layers=1)
    config = dataclasses.replace(CONFIG, epochs=30, learning_rate=2.0, decay=1.0, dropout=0.0, seed=seed)
    result = run(out, config, recorder=recorder, model=model)
    margin("first loss", recorder.losses[0], low=2.1)  # ln 10 = 2.30: all words alike
    margin("best perplexity", result.best_perplexity, high=3)
    assert result.steps == 30 * 7 == len(recorder.steps)
    perplexities = [progress.validation_perplexity for progress in recorder.evaluations]
    assert result.best_perplexity == min(p for p in perplexities if p is not None)
    assert result.last_perplexity == perplexities[-1]
    kept = LanguageModel(model)
    kept.load(load_weights(out, model, WORDS))
    assert evaluate(kept, CORPUS.validation, 4, 5).without_unknown == result.best_perplexity


@pytest.mark.learns
def test_worse_weights_do_not_replace_the_best(tmp_path: Path, margin: Margin, seed: int) -> None:
    # Trained on words that the validation text does not hold, the model gets worse at it with every epoch.
    corpus = Corpus(WORDS.encode([b"cat cat cat"] * 30), WORDS.encode([b"dog dog dog"] * 4))
    result = run(tmp_path / "base.safetensors", dataclasses.replace(CONFIG, seed=seed), corpus=corpus)
    margin("last loss above the best", math.log(result.last_perplexity / result.best_perplexity), low=0.2)
    kept = LanguageModel(MODEL)
    kept.load(load_weights(tmp_path / "base.safetensors", MODEL))
    assert evaluate(kept, corpus.validation, 4, 5).without_unknown == result.best_perplexity


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


def test_the_file_says_what_it_was_trained_with(tmp_path: Path) -> None:
    run(tmp_path / "base.safetensors", dataclasses.replace(CONFIG, max_steps=2))
    with TensorFile(tmp_path / "base.safetensors") as file:
        assert file.metadata[VOCABULARY_SHA256] == vocabulary_sha256(WORDS)
        assert (file.metadata["minibatch"], file.metadata["seed"], file.metadata["steps"]) == ("4", "3", "2")
        assert "lstm.weight_ih_l0" in file.specs


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("after", [5, 7, 9])  # within an epoch, at its last step before evaluation, in the next one
def test_an_interrupted_and_resumed_run_ends_as_an_undisturbed_one(tmp_path: Path, cell: Cell, after: int) -> None:
    model = msgspec.structs.replace(MODEL, cell=cell)
    whole, halves = Recorder(), (Recorder(interrupt_after=after), Recorder())
    expected = run(tmp_path / "whole", state=tmp_path / "whole-state", recorder=whole, model=model)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "halves", state=tmp_path / "state", recorder=halves[0], model=model)
    torch.manual_seed(1234)  # the caller's random state has no part in it
    result = run(tmp_path / "halves", state=tmp_path / "state", recorder=halves[1], model=model)
    assert halves[0].losses + halves[1].losses == whole.losses
    assert dataclasses.replace(result, weights=expected.weights) == expected
    assert (tmp_path / "halves").read_bytes() == (tmp_path / "whole").read_bytes()
    assert (tmp_path / "state" / STATE).read_bytes() == (tmp_path / "whole-state" / STATE).read_bytes()


def test_a_killed_run_goes_on_from_its_last_checkpoint(tmp_path: Path) -> None:
    class KilledError(Exception):
        pass

    def kill(progress: PretrainProgress) -> None:
        if progress.step == 5:
            raise KilledError

    with pytest.raises(KilledError):
        pretrain(MODEL, WORDS, CORPUS, CONFIG, tmp_path / "a", state_folder=tmp_path / "state", progress=kill)
    recorder = Recorder()
    run(tmp_path / "a", state=tmp_path / "state", recorder=recorder)
    assert recorder.steps[0].step == 4  # checkpoint_steps = 3
    run(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_max_steps_stops_early_and_more_of_them_go_on(tmp_path: Path) -> None:
    out, state = tmp_path / "base.safetensors", tmp_path / "state"
    assert run(out, dataclasses.replace(CONFIG, max_steps=3), state).steps == 3
    recorder = Recorder()
    assert run(out, dataclasses.replace(CONFIG, max_steps=9), state, recorder).steps == 9
    assert [(progress.epoch, progress.step) for progress in recorder.steps] == [
        (1, 4), (1, 5), (1, 6), (1, 7), (2, 1), (2, 2),
    ]  # fmt: skip


def test_a_finished_run_started_again_trains_no_further(tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, epochs=1)
    first = run(tmp_path / "out", config, tmp_path / "state")
    recorder = Recorder()
    assert run(tmp_path / "out", config, tmp_path / "state", recorder) == first
    assert not recorder.steps


def test_the_state_of_another_run_is_refused(tmp_path: Path) -> None:
    state = tmp_path / "state"
    run(tmp_path / "out", dataclasses.replace(CONFIG, max_steps=1), state)
    with pytest.raises(ArtifactsError, match=r"with learning_rate 1\.0, this one has 0\.5"):
        run(tmp_path / "out", dataclasses.replace(CONFIG, learning_rate=0.5), state)
    with pytest.raises(ArtifactsError, match="training_sha256"):
        run(tmp_path / "out", state=state, corpus=Corpus(CORPUS.training[1:], CORPUS.validation))
    (tmp_path / "out").unlink()
    with pytest.raises(ArtifactsError, match="the best weights of the run to resume"):
        run(tmp_path / "out", state=state)
    # A run that was stopped before it was ever validated: its state alone says whose it is.
    state = tmp_path / "early"
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "out", state=state, recorder=Recorder(interrupt_after=2))
    assert not (tmp_path / "out").exists()
    saved = (state / STATE).read_bytes()
    with pytest.raises(ArtifactsError, match="made by a run with seed 3, this one has 4"):
        run(tmp_path / "out", dataclasses.replace(CONFIG, seed=4), state)
    assert (state / STATE).read_bytes() == saved


def test_a_damaged_state_is_refused(tmp_path: Path) -> None:
    run(tmp_path / "out", dataclasses.replace(CONFIG, max_steps=1), tmp_path / "state")
    path = tmp_path / "state" / STATE
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ArtifactsError, match=r"damaged .*truncated.*start over"):
        run(tmp_path / "out", state=tmp_path / "state")


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Python's own SIGINT handler: a test run in the background inherits SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_a_signal_lets_the_step_finish_and_the_state_be_saved(tmp_path: Path) -> None:
    def interrupt(progress: PretrainProgress) -> None:
        if progress.step == 2:
            os.kill(os.getpid(), signal.SIGINT)
            reached.append(progress.step)  # the signal did not break in here

    reached: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        pretrain(MODEL, WORDS, CORPUS, CONFIG, tmp_path / "o", state_folder=tmp_path / "s", progress=interrupt)
    assert reached == [2]
    with TensorFile(tmp_path / "s" / STATE) as file:
        assert file.metadata["step"] == "2"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("ctrl_c")
def test_a_second_signal_interrupts_at_once() -> None:
    reached = []
    with pytest.raises(KeyboardInterrupt), deferred_interrupt():
        os.kill(os.getpid(), signal.SIGINT)
        reached.append(1)
        os.kill(os.getpid(), signal.SIGINT)
        reached.append(2)
    assert reached == [1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def weights_leave_the_finite_numbers_in(step: int, patch: pytest.MonkeyPatch) -> None:
    """As at too high a rate; but there rounding would decide when, and so whether training or validation sees it."""

    def step_and_spoil(model: LanguageModel, *arguments: Any, **named: Any) -> Any:
        trained = train_step(model, *arguments, **named)
        if named["step"] + 1 == step:
            with torch.no_grad():
                model.embedding.weight.fill_(torch.inf)
        return trained

    patch.setattr("phonograd.export.pretrain.train_step", step_and_spoil)


def test_divergence_names_the_step_and_the_learning_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = dataclasses.replace(CONFIG, learning_rate=1.5, clip_norm=None)
    weights_leave_the_finite_numbers_in(2, monkeypatch)
    with pytest.raises(
        TrainingError, match=r"step 3: loss nan .*learning rate is 1\.5, clip norm None: choose a lower"
    ):
        run(tmp_path / "out", config)
    with pytest.raises(TrainingError, match=r"validation: loss is nan .*choose a lower learning rate"):
        run(tmp_path / "out", dataclasses.replace(config, max_steps=2))
    assert not (tmp_path / "out").exists()


def test_a_text_below_one_window_is_refused(tmp_path: Path) -> None:
    corpus = Corpus(CORPUS.training[:20], CORPUS.validation)
    with pytest.raises(TextError, match=r"21 tokens expected to fill one window of 4 x 5, found 20"):
        run(tmp_path / "out", corpus=corpus)
    with pytest.raises(TextError, match="validation text: at least 2 tokens expected, found 1"):
        run(tmp_path / "out", corpus=Corpus(CORPUS.training, CORPUS.validation[:1]))


def test_a_vocabulary_of_another_size_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VocabularyError, match="11 words expected by the model, found 10"):
        run(tmp_path / "out", model=msgspec.structs.replace(MODEL, vocabulary=11))


def test_the_callers_random_state_is_left_as_it_was(tmp_path: Path) -> None:
    before = torch.get_rng_state()
    run(tmp_path / "out", dataclasses.replace(CONFIG, max_steps=1))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_step_is_sgd_on_the_loss_summed_over_time_with_its_gradient_clipped() -> None:
    config = dataclasses.replace(CONFIG, dropout=0.0, clip_norm=0.7)
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
        config = dataclasses.replace(CONFIG, seed=seed)
        return train_step(model, window, model.zero_state(4), config=config, step=step, learning_rate=1.0)[0]

    assert loss_at(3, 1) == loss_at(3, 1)
    assert len({loss_at(3, 1), loss_at(3, 2), loss_at(4, 1)}) == 3


def test_dropout_acts_on_embedding_and_output_but_not_in_evaluation() -> None:
    model = LanguageModel(msgspec.structs.replace(MODEL, layers=1), dropout=0.5)
    inputs = torch.zeros(1, 400, dtype=torch.int64)
    torch.manual_seed(0)
    hidden = model(inputs, model.zero_state(400))[1][0]
    assert len(hidden[0].unique(dim=0)) > 100  # the same word everywhere, differing by the embedding's mask
    model.eval()
    torch.testing.assert_close(*model(inputs[:, :2], model.zero_state(2))[0][0])


def test_zarembas_schedule() -> None:
    config = PretrainConfig()
    rates = [config.learning_rate_in(epoch) for epoch in (1, 6, 7, 8, 39)]
    assert rates == pytest.approx([1, 1, 1 / 1.2, 1 / 1.44, 1.2**-33])


def test_columns_follow_each_other_in_the_stream() -> None:
    columns = training_columns(np.arange(24), minibatch=2, bptt=4)
    np.testing.assert_array_equal(columns.inputs[:, 0], range(11))
    np.testing.assert_array_equal(columns.inputs[:, 1], range(11, 22))
    np.testing.assert_array_equal(columns.targets, columns.inputs + 1)
    assert columns.windows == 3
    assert [len(columns.window(index)[0]) for index in range(3)] == [4, 4, 3]
    assert evaluation_columns(np.arange(9), minibatch=20, bptt=4).minibatch == 2
    assert evaluation_columns(np.arange(2), minibatch=20, bptt=4).windows == 1


def test_a_twentieth_is_held_out_where_no_validation_text_is_given(tmp_path: Path) -> None:
    text, other = tmp_path / "a.txt", tmp_path / "b.txt"
    text.write_bytes(b"the cat\n" * 39 + b"dog ran home\n")
    other.write_bytes(b"mat\n")
    corpus = load_corpus([text], WORDS)
    np.testing.assert_array_equal(corpus.validation, WORDS.encode([b"the cat", b"dog ran home"]))
    assert len(corpus.training) == 38 * 3
    given = load_corpus([text], WORDS, other)
    np.testing.assert_array_equal(given.validation, [6, 1])
    assert len(given.training) == 39 * 3 + 4
    with pytest.raises(TextError, match="1 message found, expected at least 2"):
        load_corpus([other], WORDS)
    with pytest.raises(TextError, match="no text given"):
        load_corpus([], WORDS)


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        ("minibatch", 0, "at least 1"), ("epochs", 0, "at least 1"), ("max_steps", 0, "at least 1"),
        ("learning_rate", float("nan"), "more than 0"), ("clip_norm", 0.0, "more than 0"), ("decay", 0.5, "at least 1"),
        ("dropout", 1.0, r"a number in \[0, 1\)"), ("seed", -1, "0 or more"), ("decay_after", -1, "0 or more"),
        ("device", "tpu", "one of auto, cpu, cuda"), ("precision", "fp8", "one of fp32, bf16"),
    ],
)  # fmt: skip
def test_settings_out_of_range_are_named(setting: str, value: Any, expected: str) -> None:
    with pytest.raises(ArtifactsError, match=f"pre-training: {setting} is {value}, expected {expected}"):
        dataclasses.replace(CONFIG, **{setting: value})


def test_a_device_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(pretrain_step, "trains_bf16", lambda device: False)
    with pytest.raises(ArtifactsError, match="device is cuda, PyTorch finds none here"):
        pretrain_step.pick_device(dataclasses.replace(CONFIG, device="cuda"))
    with pytest.raises(ArtifactsError, match="precision is bf16, and this cpu can't train in bfloat16; choose fp32"):
        pretrain_step.pick_device(dataclasses.replace(CONFIG, precision="bf16"))
    assert pretrain_step.pick_device(dataclasses.replace(CONFIG, device="auto")).type == "cpu"
