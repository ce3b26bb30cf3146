import dataclasses
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from phonograd.device_runtime.base.errors import (
    StateError,
    StoppedError,
    StorageError,
    TextError,
    VocabularyError,
)
from phonograd.device_runtime.formats.model_config import Cell
from phonograd.device_runtime.formats.tensor_file import TensorFile, load_tensors
from phonograd.export.corpus import Corpus
from phonograd.export.model_file import load_model
from phonograd.export.pretrain_config import PretrainConfig
from phonograd.export.pretrain_state import RECORD, PretrainState
from phonograd.export.torch_layout import VOCABULARY_SHA256, vocabulary_sha256
from tests.support.margins import Margin
from tests.support.pretraining import CORPUS, MESSAGES, MODEL, NATIVE, TORCH, WORDS, KilledError, Recorder, run

both = pytest.mark.parametrize("config", [NATIVE, TORCH], ids=["native", "torch"])


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@both
@pytest.mark.learns
def test_the_loss_falls_and_the_best_weights_are_kept(
    tmp_path: Path, config: PretrainConfig, margin: Margin, seed: int
) -> None:
    out, recorder = tmp_path / "base.safetensors", Recorder()
    model = msgspec.structs.replace(MODEL, layers=1)
    config = replace(config, epochs=40, learning_rate=1.0, decay=1.0, dropout=0.0, seed=seed)
    result = run(out, config, recorder=recorder, model=model)
    margin("first loss", recorder.losses[0], low=2.1)  # ln 10 = 2.30: all words alike
    margin("best perplexity", result.best_perplexity, high=3)  # a unigram's is 7
    assert result.steps == len(recorder.steps)
    assert [point.steps for point in result.curve] == [result.steps // 40 * epoch for epoch in range(1, 41)]
    assert [(point.perplexity, point.perplexity_with_unknown) for point in result.curve] == [
        (seen.validation_perplexity, seen.validation_perplexity_with_unknown) for seen in recorder.evaluations
    ]
    assert result.best_perplexity_with_unknown == min(point.perplexity_with_unknown for point in result.curve)
    assert result.last_perplexity == result.curve[-1].perplexity
    with TensorFile(out) as file:
        assert file.metadata["validation_perplexity"] == repr(result.best_perplexity)


@both
@pytest.mark.learns
def test_worse_weights_do_not_replace_the_best(
    tmp_path: Path, config: PretrainConfig, margin: Margin, seed: int
) -> None:
    # Trained on words that the validation text does not hold, the model gets worse at it with every epoch.
    corpus = Corpus(WORDS.encode([b"cat cat cat"] * 30), [b"dog dog dog"] * 4)
    # Over all words: which ones a sample draws would decide how much worse.
    full = {"output_sample": None} if config.backend == "native" else {}
    config = replace(config, seed=seed, **full)
    result = run(tmp_path / "best", config, tmp_path / "state", corpus=corpus)
    margin("last loss above the best", math.log(result.last_perplexity / result.best_perplexity), low=0.2)
    first = replace(config, epochs=1)
    assert run(tmp_path / "first", first, corpus=corpus).last_perplexity == result.best_perplexity
    assert (tmp_path / "best").read_bytes() == (tmp_path / "first").read_bytes()


@both
def test_the_file_is_a_model_and_says_what_it_was_trained_with(tmp_path: Path, config: PretrainConfig) -> None:
    out = tmp_path / "base.safetensors"
    run(out, replace(config, max_steps=2))
    with TensorFile(out) as file:
        assert file.metadata[VOCABULARY_SHA256] == vocabulary_sha256(WORDS)
        found = [file.metadata[name] for name in ("minibatch", "seed", "steps", "backend")]
        assert found == ["4", "3", "2", config.backend]
        assert list(file.specs.values()) == MODEL.tensor_specs()
    model = load_model(out, WORDS)
    assert (model.config, model.remarks) == (MODEL, ())


@pytest.mark.parametrize(
    ("config", "cell", "after"),  # within an epoch, at its last step before evaluation, in the next one
    [(NATIVE, "lstm", 5), (NATIVE, "gru", 7), (NATIVE, "lstm", 9), (TORCH, "gru", 5), (TORCH, "lstm", 7)],
    ids=lambda value: value.backend if isinstance(value, PretrainConfig) else str(value),
)
def test_a_stopped_and_resumed_run_ends_as_an_undisturbed_one(
    tmp_path: Path, config: PretrainConfig, cell: Cell, after: int
) -> None:
    model = msgspec.structs.replace(MODEL, cell=cell)
    expected = run(tmp_path / "whole", config, tmp_path / "whole-state", model=model)
    recorder = Recorder(signal_after=after)
    with pytest.raises(StoppedError, match=r"stopped after step \d; the state is saved: run the same") as stopped:
        run(tmp_path / "halves", config, tmp_path / "state", recorder, model=model)
    assert stopped.value.exit_code == 143
    assert len(recorder.steps) == after  # at once
    result = run(tmp_path / "halves", config, tmp_path / "state", model=model)
    assert dataclasses.replace(result, weights=expected.weights) == expected
    assert (tmp_path / "halves").read_bytes() == (tmp_path / "whole").read_bytes()
    # ONNX Runtime's checkpoint may differ each time a model is exported; nothing reads it here.
    states = [everything(tmp_path / name) for name in ("state", "whole-state")]
    assert states[0].keys() == states[1].keys()
    saved = [name for name in states[0] if not name.startswith("artifacts")]
    assert {name: states[0][name] for name in saved} == {name: states[1][name] for name in saved}
    assert len(saved) == 3  # record, lock, and one file of weights


@both
def test_a_run_killed_again_and_again_ends_as_an_undisturbed_one(tmp_path: Path, config: PretrainConfig) -> None:
    steps = run(tmp_path / "b", config).steps
    done = 0
    while True:
        recorder = Recorder(kill_after=5)  # a part, or what was saved before, and a step more
        try:
            run(tmp_path / "a", config, tmp_path / "state", recorder)
            break
        except KilledError:
            position = (recorder.steps[0].epoch - 1) * recorder.steps[0].steps + recorder.steps[0].step
            assert done - 5 < position <= done + 1
            done = position + 4
    assert done < steps
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@both
def test_max_steps_stops_early_and_more_of_them_go_on(tmp_path: Path, config: PretrainConfig) -> None:
    out, state = tmp_path / "base.safetensors", tmp_path / "state"
    assert run(out, replace(config, max_steps=3), state).steps == 3
    recorder = Recorder()
    assert run(out, replace(config, max_steps=3), state, recorder).steps == 3
    assert not recorder.steps
    result = run(out, replace(config, max_steps=9), state)
    assert [(point.steps, point.tokens) for point in result.curve] == [(3, 60), (7, 140), (9, 180)]
    run(tmp_path / "at once", replace(config, max_steps=9))
    names = MODEL.tensor_specs()
    whole, halves = load_tensors(tmp_path / "at once"), load_tensors(out)
    assert all((whole[spec.name] == halves[spec.name]).all() for spec in names)


@both
def test_the_state_of_another_run_is_refused(tmp_path: Path, config: PretrainConfig) -> None:
    state = tmp_path / "state"
    run(tmp_path / "out", replace(config, max_steps=1), state)
    before = everything(state)
    with pytest.raises(StateError, match=r"with learning_rate 1\.0, this one has 0\.5"):
        run(tmp_path / "out", replace(config, learning_rate=0.5), state)
    with pytest.raises(StateError, match="training_sha256"):
        run(tmp_path / "out", config, state, corpus=Corpus(CORPUS.training[1:], CORPUS.validation))
    with pytest.raises(StateError, match="validation_sha256"):
        run(tmp_path / "out", config, state, corpus=Corpus(CORPUS.training, MESSAGES[:1]))
    (tmp_path / "out").unlink()
    with pytest.raises(StateError, match="the best weights of the run to resume"):
        run(tmp_path / "out", config, state)
    assert everything(state) == before


def test_a_run_is_known_before_it_is_evaluated(tmp_path: Path) -> None:
    with pytest.raises(StoppedError):
        run(tmp_path / "out", TORCH, tmp_path / "state", recorder=Recorder(signal_after=2))
    assert not (tmp_path / "out").exists()
    with pytest.raises(StateError, match="made by a run with backend torch, this one has native"):
        run(tmp_path / "out", NATIVE, tmp_path / "state")


@both
def test_a_damaged_state_is_refused(tmp_path: Path, config: PretrainConfig) -> None:
    state = tmp_path / "state"
    run(tmp_path / "out", config, state)
    (weights,) = state.glob("*.safetensors")
    kept = weights.read_bytes()
    weights.write_bytes(kept[:-1])
    with pytest.raises(StateError, match=r"safetensors: SHA-256 .* expected, found [0-9a-f]{64}; .*start over"):
        run(tmp_path / "out", config, state)
    weights.unlink()
    with pytest.raises(StateError, match=r"safetensors: SHA-256 .* expected, found No such file"):
        run(tmp_path / "out", config, state)
    (state / RECORD).write_bytes(b"{}")
    with pytest.raises(StateError, match=r"pretrain\.json: damaged \(identity: missing\)"):
        run(tmp_path / "out", config, state)


def test_a_folder_that_is_in_use_or_someone_elses(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "1.safetensors").write_bytes(b"")
    with pytest.raises(StorageError, match=r"an empty folder or none expected.*found 1\.safetensors"):
        run(tmp_path / "out", TORCH, mine)
    state = PretrainState(tmp_path / "state", {}, tmp_path / "out")
    with pytest.raises(StateError, match="another run is training in it"):
        run(tmp_path / "out", TORCH, tmp_path / "state")
    state.close()
    with pytest.raises(StateError, match="made by a run with"):
        run(tmp_path / "out", TORCH, tmp_path / "state")


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    config, corpus = NATIVE, Corpus(CORPUS.training[:20], CORPUS.validation)
    with pytest.raises(TextError, match=r"21 tokens expected to fill one window of 4 x 5, found 20"):
        run(tmp_path / "out", config, corpus=corpus)
    with pytest.raises(VocabularyError, match="11 words expected by the model, found 10"):
        run(tmp_path / "out", config, model=msgspec.structs.replace(MODEL, vocabulary=11))


def test_the_learning_rate_falls_without_jumps() -> None:
    config = PretrainConfig()
    rates = [config.learning_rate_after(epochs) for epochs in (0, 6, 6.5, 7, 39)]
    assert rates == pytest.approx([1, 1, 1.2**-0.5, 1 / 1.2, 1.2**-33])
    assert replace(config, learning_rate=3, decay=4, decay_after=0.5).learning_rate_after(1) == 1.5


@both
def test_each_step_has_its_learning_rate(tmp_path: Path, config: PretrainConfig) -> None:
    recorder = Recorder()
    config = replace(config, decay_after=0.5, epochs=2)
    run(tmp_path / "out", config, recorder=recorder)
    # Native: that of its part, which begins at step 0 or 4 of the epoch's seven.
    began = [step if config.backend == "torch" else step // 7 * 7 + step % 7 // 4 * 4 for step in range(14)]
    assert [seen.learning_rate for seen in recorder.steps] == [config.learning_rate_after(step / 7) for step in began]


@pytest.mark.parametrize(
    ("backend", "setting", "value"),
    [
        ("native", "device", "cuda"), ("native", "checkpoint_steps", 5), ("torch", "threads", 1),
        ("torch", "output_sample", None), ("torch", "part_steps", 5), ("torch", "evaluate_every", 1),
    ],
)  # fmt: skip
def test_settings_of_another_backend_are_named(backend: str, setting: str, value: Any) -> None:
    other = "torch" if backend == "native" else "native"
    with pytest.raises(ValueError, match=f"`{setting}` is {value!r}, expected with backend {other} only; .*{backend}"):
        PretrainConfig(**{"backend": backend, setting: value})
