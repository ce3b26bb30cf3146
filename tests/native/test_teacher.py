"""A teacher of another shape, with the student's words or more: the loss, and what trains by it."""

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from phonograd.device_runtime.base.errors import ArtifactsError, UsageError, VocabularyError
from phonograd.device_runtime.engine.backend import IGNORED, BackendOptions, OutputSample, Window
from phonograd.device_runtime.engine.native import NativeBackend
from phonograd.device_runtime.formats.manifest import WEIGHTS, Artifacts, TrainingConfig, open_artifacts
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import Floats, load_tensors
from phonograd.device_runtime.training.round import ResumableState, Round, RoundSettings
from tests.native.epochs import KERNELS, LEARNING_RATE, B, E, H, T, V, candidates, windows
from tests.support.artifacts import exported, model_weights, words

MORE = V + 41
TRAINING = TrainingConfig(minibatch=B, bptt=T, loss="lwf", user_share=0.3, clip_norm=0.05)
STUDENTS = {
    "tied": LanguageModelConfig("cifg", V, E, H, 1, tied=True, output_bias=False),
    "untied": LanguageModelConfig("lstm", V, E, H, 1),
}
TEACHERS = {
    "untied": LanguageModelConfig("lstm", V, 20, 28, 2),
    "tied": LanguageModelConfig("cifg", V, 20, 28, 1, tied=True),
    "projected": LanguageModelConfig("lstm", V, 20, 28, 1, tied=True, output_bias=False),
}


def teacher_of(name: str, vocabulary: int) -> Artifacts:
    return exported(replace(TEACHERS[name], vocabulary=vocabulary), TRAINING, seed=7, spread=8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("students")


def student_of(folder: Path, student: str, teacher: Artifacts) -> Artifacts:
    from phonograd.export.artifacts import export_artifacts

    model, made = STUDENTS[student], teacher.manifest.model
    name = f"{student}-{made.cell}-{made.layers}-{made.vocabulary}"
    if (folder / name).exists():
        return open_artifacts(folder / name)
    weights = model_weights(model, seed=3, spread=10)
    return export_artifacts(folder / name, model, TRAINING, weights, words(V), teacher=made)


def sample_of(teacher: Artifacts) -> OutputSample:
    """The student's candidates, and with more words some of those that it has not."""
    sample, missing = candidates(), np.arange(V, teacher.manifest.model.vocabulary)[::3]
    shifts = np.concatenate([sample.shifts, np.random.default_rng(4).exponential(size=len(missing)).astype(np.float32)])
    shifts[0] = 0  # <unk> is always there
    return OutputSample(np.concatenate([sample.candidates, missing]), shifts)


def open_student(
    artifacts: Artifacts, teacher: Artifacts, sample: OutputSample | None, fuse: bool = True, kernels: str | None = None
) -> NativeBackend:
    options = BackendOptions(threads=1, seed=9, sample=sample, teacher=teacher.folder, kernels=kernels)
    return NativeBackend(artifacts, None, options, fuse)


def log_softmax(scores: Floats) -> Floats:
    scores = scores.astype(np.float64)
    highest = scores.max(axis=1, keepdims=True)
    return scores - highest - np.log(np.exp(scores - highest).sum(axis=1, keepdims=True))


def expected_loss(artifacts: Artifacts, teacher: Artifacts, window: Window, sample: OutputSample | None) -> float:
    """FORMAT.md's y*, in so many words: the teacher's probabilities, those of missing words added to <unk>'s."""
    sample = sample or OutputSample(np.arange(teacher.manifest.model.vocabulary), np.zeros(MORE, np.float32))
    known = sample.candidates < V
    scores = {}
    for model in (artifacts, teacher):
        options = BackendOptions(teacher=teacher.folder) if model is artifacts else BackendOptions()
        with NativeBackend(model, None, options) as engine:
            scores[model.folder] = engine.logits(window.tokens)
    log_q = log_softmax(scores[artifacts.folder][:, sample.candidates[known]] + sample.shifts[: known.sum()])
    p = np.exp(log_softmax(scores[teacher.folder][:, sample.candidates] + sample.shifts[: len(sample.candidates)]))
    soft = p[:, known].copy()
    soft[:, 0] += p[:, ~known].sum(axis=1)
    targets = window.targets.ravel()
    places = np.searchsorted(sample.candidates, targets)
    total = 0.0
    for n in range(len(targets)):
        if targets[n] != IGNORED:
            total -= TRAINING.user_share * log_q[n, places[n]] + (1 - TRAINING.user_share) * (soft[n] * log_q[n]).sum()
    return float(total / B)


each = pytest.mark.parametrize(
    ("student", "teacher"),
    [("tied", "untied"), ("tied", "tied"), ("untied", "projected"), ("untied", "untied"), ("untied", "tied")],
)


@each
@pytest.mark.parametrize("vocabulary", [V, MORE])
@pytest.mark.parametrize("sampled", [False, True])
def test_the_loss_is_that_of_format_md(
    folder: Path, student: str, teacher: str, vocabulary: int, sampled: bool
) -> None:
    of = teacher_of(teacher, vocabulary)
    artifacts, sample = student_of(folder, student, of), sample_of(of) if sampled else None
    window = windows(sampled)[-1]  # with padding
    with open_student(artifacts, of, sample) as engine:
        assert ", distillation" in engine.plan()  # beside the student's output layer, not node by node
        loss = engine.step(window, LEARNING_RATE)
    assert loss == pytest.approx(expected_loss(artifacts, of, window, sample), rel=1e-5)


@each
@pytest.mark.parametrize("vocabulary", [V, MORE])
@pytest.mark.parametrize("sampled", [False, True])
def test_fused_as_unfused(folder: Path, student: str, teacher: str, vocabulary: int, sampled: bool) -> None:
    of = teacher_of(teacher, vocabulary)
    artifacts, sample = student_of(folder, student, of), sample_of(of) if sampled else None
    first = load_tensors(artifacts.path(WEIGHTS))
    with open_student(artifacts, of, sample, fuse=False) as unfused:
        losses = [unfused.step(window, LEARNING_RATE) for window in windows(sampled)]
        expected = unfused.weights()
    for kernels in KERNELS:
        with open_student(artifacts, of, sample, kernels=kernels) as engine:
            assert [engine.step(window, LEARNING_RATE) for window in windows(sampled)] == pytest.approx(
                losses, rel=1e-5
            )
            found = engine.weights()
        assert found.keys() == first.keys()
        for name, values in expected.items():
            moved = np.linalg.norm(values - first[name])
            assert moved > 0
            assert np.linalg.norm(found[name] - values) < 1e-3 * moved, name


def losses_of_round(artifacts: Artifacts, teacher: Artifacts, output_sample: int | None) -> tuple[float, ...]:
    options = BackendOptions(threads=1, teacher=teacher.folder)
    stream = np.random.default_rng(1).integers(0, V, 2 * T * B)
    with Round(
        RoundSettings(folder=artifacts.folder, stream=stream, output_sample=output_sample, options=options)
    ) as one:
        return one.train().report.losses


def test_a_round_draws_words_that_the_teacher_alone_has(folder: Path) -> None:
    teacher = teacher_of("untied", MORE)
    artifacts = student_of(folder, "tied", teacher)
    every_word = losses_of_round(artifacts, teacher, 10**6)  # their chance is 1
    assert every_word == pytest.approx(losses_of_round(artifacts, teacher, None), rel=1e-5)


def test_what_does_not_fit_is_refused(folder: Path, tmp_path: Path) -> None:
    teacher, shorter = teacher_of("untied", V), teacher_of("untied", V - 1)
    artifacts = student_of(folder, "tied", teacher)
    with pytest.raises(
        VocabularyError, match=f"at least the student's {V} words expected, found {V - 1}; choose another"
    ):
        open_student(artifacts, shorter, None)
    other = OutputSample(np.array([0, 1, MORE]), np.zeros(3, np.float32))
    with pytest.raises(UsageError, match=f"candidate {MORE}: expected one of the teacher's {V} words"):
        open_student(artifacts, teacher, other)
    for wrong in (teacher_of("projected", V), teacher_of("untied", MORE)):  # its graph is another's
        with pytest.raises(ArtifactsError, match="expected.*found .*; export the artifacts again"):
            open_student(artifacts, wrong, None)
    with pytest.raises(UsageError, match="`teacher` and `state` exclude each other"):
        Round(
            RoundSettings(
                folder=artifacts.folder,
                stream=np.zeros(100, np.int64),
                options=BackendOptions(teacher=teacher.folder),
                state=ResumableState(folder=tmp_path / "state"),
            )
        )
