"""One step with the gradient of a whole text (FedSGD): a round's step against PyTorch's autograd."""

import dataclasses
import itertools
import math
from pathlib import Path

import msgspec
import numpy as np
import pytest

from phonograd.device_runtime.base.errors import TrainingError
from phonograd.device_runtime.formats.manifest import VOCABULARY
from phonograd.device_runtime.formats.tensor_file import load_tensors
from phonograd.device_runtime.text.output_sample import SampleDraw, draw_output_sample
from phonograd.device_runtime.text.vocabulary import Ids, Vocabulary
from phonograd.device_runtime.text.windows import windows
from phonograd.device_runtime.training.round import Round, RoundSettings
from tests.golden.cases import CASES, LEARNING_RATE, Case
from tests.golden.torch_reference import TorchTrainer, relative_error
from tests.support.artifacts import exported, model_weights

TOLERANCE = 1e-5

# Five windows and a part of one, with even words alone, so that an output sample leaves words out.
STREAM: Ids = np.random.default_rng(0).integers(0, 20, 5 * 15 + 7) * 2


def with_clip_norm(case: Case, clip_norm: float | None) -> Case:
    return dataclasses.replace(case, training=msgspec.structs.replace(case.training, clip_norm=clip_norm))


# Each cell with and without clipping and a sample; not all of them with each model.
RUNS = zip(CASES, itertools.cycle(itertools.product([None, 0.05], [None, 4])), strict=False)


@pytest.mark.parametrize(("name", "clip_norm", "drawn"), [(name, *way) for name, way in RUNS])
def test_the_mean_gradient_of_all_windows_makes_one_step(
    tmp_path: Path, name: str, clip_norm: float | None, drawn: int | None
) -> None:
    case, out = with_clip_norm(CASES[name], clip_norm), tmp_path / "out"
    artifacts = exported(case.model, case.training, spread=10)
    first, training = model_weights(case.model, spread=10), case.training
    parts = windows(STREAM, training.minibatch, training.bptt)
    sample = None
    if drawn is not None:
        counts = Vocabulary.load(artifacts.path(VOCABULARY)).frequencies()
        sample = draw_output_sample(STREAM, counts, SampleDraw(drawn, 1))
    reference = TorchTrainer(case, first, sample)
    expected = reference.full_batch(parts, LEARNING_RATE)
    draw = {"output_sample": drawn, "sample_seed": None if drawn is None else 1}
    with Round(RoundSettings(folder=artifacts.folder, stream=STREAM, steps=1, seed=0, out=out, **draw)) as round_:
        report = round_.train().report
    if case.training.loss_reduction == "sum_over_time":
        expected = [loss * 3 / window.predictions for loss, window in zip(expected, parts, strict=True)]
    assert report.windows_per_step == len(parts) == 6
    np.testing.assert_allclose(report.losses, expected, rtol=TOLERANCE)
    weights = load_tensors(out)
    for tensor, after in reference.model.weights().items():
        assert relative_error(weights[tensor], after) <= TOLERANCE, tensor
        # The step itself, to what float32 weights can hold of it.
        slack = 1e-3 * np.abs(after - first[tensor]).max() + 4 * np.finfo(np.float32).eps * np.abs(after).max()
        np.testing.assert_allclose(weights[tensor] - first[tensor], after - first[tensor], rtol=0, atol=slack)
    if clip_norm is not None:
        moved = math.sqrt(sum(float(np.sum((weights[tensor] - first[tensor]) ** 2)) for tensor in first))
        assert moved == pytest.approx(LEARNING_RATE * clip_norm, rel=1e-4)


def test_a_gradient_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    case = with_clip_norm(CASES["lstm"], 1.0)
    folder = exported(case.model, case.training, spread=10).folder
    settings = RoundSettings(folder=folder, stream=STREAM, steps=1, seed=0, learning_rate=1e38, out=tmp_path / "out")
    with Round(settings) as round_, pytest.raises(TrainingError, match="the gradient's norm is not finite; lower the"):
        round_.train()
    assert not (tmp_path / "out").exists()
