"""Pre-training with a teacher; tests/native/test_teacher.py holds the loss."""

import dataclasses
from pathlib import Path

import pytest
from msgspec.structs import replace

from phonograd.device_runtime.base.errors import StateError, StoppedError, UsageError, VocabularyError
from phonograd.device_runtime.formats.manifest import WEIGHTS, Artifacts, TrainingConfig
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import TensorFile
from phonograd.device_runtime.text.vocabulary import Vocabulary
from phonograd.export.adapters import with_adapters
from phonograd.export.artifacts import export_artifacts
from phonograd.export.torch_layout import seeded_weights
from tests.support.pretraining import MODEL, NATIVE, TORCH, WORDS, Recorder, run


def export_teacher(folder: Path, words: Vocabulary, seed: int = 1, adapters: int = 0) -> Artifacts:
    model = LanguageModelConfig("gru", len(words), 6, 7, 1)
    weights = {name: values * 10 for name, values in seeded_weights(model, seed).items()}
    if adapters:
        model, weights = with_adapters(model, weights, adapters, seed)
    return export_artifacts(folder, model, TrainingConfig(), weights, words, frozen=model.frozen_by_adapters())


def with_words(*words: bytes) -> Vocabulary:
    """The student's vocabulary and these words, with counts."""
    return Vocabulary((*WORDS.words, *words), counts=tuple(range(50, 40 - len(words), -1)))


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Artifacts:
    """A teacher of more words than its student."""
    return export_teacher(tmp_path_factory.mktemp("teacher") / "artifacts", with_words(b"hat", b"bat"))


def test_it_has_its_share_and_stays_what_it_is(tmp_path: Path, teacher: Artifacts) -> None:
    before, config = teacher.path(WEIGHTS).read_bytes(), replace(NATIVE, output_sample=None)
    run(tmp_path / "half", config, teacher=teacher)
    run(tmp_path / "little", replace(config, text_share=0.1), teacher=teacher)
    run(tmp_path / "none", config)
    found = {path.read_bytes() for path in (tmp_path / "half", tmp_path / "little", tmp_path / "none")}
    assert len(found) == 3
    with TensorFile(tmp_path / "half") as file:
        assert list(file.specs.values()) == MODEL.tensor_specs()
        assert file.metadata["teacher_sha256"] == teacher.weights_sha256
        assert file.metadata["text_share"] == "0.5"
    assert teacher.path(WEIGHTS).read_bytes() == before


def test_all_of_the_text_is_no_teacher(tmp_path: Path, teacher: Artifacts) -> None:
    config = replace(NATIVE, output_sample=None, text_share=1.0)
    with_it, without = Recorder(), Recorder()
    run(tmp_path / "with", config, recorder=with_it, teacher=teacher)
    run(tmp_path / "without", replace(config, text_share=0.5), recorder=without)
    assert with_it.losses == pytest.approx(without.losses, rel=1e-3)


@pytest.mark.parametrize("after", [3, 9])
def test_a_resumed_run_ends_as_an_undisturbed_one(tmp_path: Path, teacher: Artifacts, after: int) -> None:
    expected = run(tmp_path / "whole", NATIVE, teacher=teacher)
    with pytest.raises(StoppedError):
        run(tmp_path / "out", NATIVE, tmp_path / "state", Recorder(signal_after=after), teacher=teacher)
    other = export_teacher(tmp_path / "other", with_words(b"hat", b"bat"), seed=2)
    for wrong, said in ((None, "none"), (other, other.weights_sha256)):
        found = f"with teacher_sha256 {teacher.weights_sha256}, this one has {said}"
        with pytest.raises(StateError, match=found):
            run(tmp_path / "out", NATIVE, tmp_path / "state", teacher=wrong)
    result = run(tmp_path / "out", NATIVE, tmp_path / "state", teacher=teacher)
    assert dataclasses.replace(result, weights=expected.weights) == expected
    assert (tmp_path / "out").read_bytes() == (tmp_path / "whole").read_bytes()


def test_its_counts_are_part_of_the_run(tmp_path: Path, teacher: Artifacts) -> None:
    config = replace(NATIVE, max_steps=1)
    run(tmp_path / "out", config, tmp_path / "state", teacher=teacher)
    words = Vocabulary((*WORDS.words, b"hat", b"bat"), counts=(7,) * 12)
    other = export_teacher(tmp_path / "other", words)
    assert other.weights_sha256 == teacher.weights_sha256
    with pytest.raises(StateError, match="with teacher_vocabulary_sha256"):
        run(tmp_path / "out", config, tmp_path / "state", teacher=other)


def test_what_cannot_teach_is_refused(tmp_path: Path, teacher: Artifacts) -> None:
    out = tmp_path / "out"
    shorter = export_teacher(tmp_path / "shorter", Vocabulary(WORDS.words[:7]))
    with pytest.raises(VocabularyError, match=r"word 7 of .*, 'dog', expected of the teacher too, found no more words"):
        run(out, NATIVE, teacher=shorter)
    words = list(WORDS.words)
    words[4:6] = words[5], words[4]
    with pytest.raises(
        VocabularyError, match=r"word 4 of .*, 'sat', expected of the teacher too, found 'on'; take the"
    ):
        run(out, NATIVE, teacher=export_teacher(tmp_path / "swapped", Vocabulary(tuple(words))))
    with pytest.raises(UsageError, match="backend native expected, found torch"):
        run(out, TORCH, teacher=teacher)
    adapted = export_teacher(tmp_path / "adapted", WORDS, adapters=2)
    with pytest.raises(UsageError, match="without adapters expected, found those of rank 2"):
        run(out, NATIVE, teacher=adapted)
    assert not out.exists()
