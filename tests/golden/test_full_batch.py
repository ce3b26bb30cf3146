"""One step with the gradient of a whole text (FedSGD): a round's step against PyTorch's autograd."""

import dataclasses
import math
from pathlib import Path

import msgspec
import numpy as np
import pytest

from phonograd.device_runtime.base.errors import TrainingError
from phonograd.device_runtime.formats.manifest import COUNTS, VOCABULARY, open_artifacts
from phonograd.device_runtime.formats.tensor_file import load_tensors
from phonograd.device_runtime.text.counts import load_counts
from phonograd.device_runtime.text.output_sample import SampleDraw, draw_output_sample
from phonograd.device_runtime.text.vocabulary import Ids, Vocabulary
from phonograd.device_runtime.training.report import training_windows
from phonograd.device_runtime.training.round import Round, RoundSettings
from tests.golden.cases import CASES, LEARNING_RATE, Case
from tests.golden.make_golden import FOLDER
from tests.golden.test_parity import TOLERANCE, load_case, part, relative_error
from tests.golden.torch_reference import TorchTrainer

# Five windows and a part of one, with even words alone, so that an output sample leaves words out.
STREAM: Ids = np.random.default_rng(0).integers(0, 20, 5 * 15 + 7) * 2


def clipped(case: Case, clip_norm: float | None) -> Case:
    return dataclasses.replace(case, training=msgspec.structs.replace(case.training, clip_norm=clip_norm))


@pytest.mark.parametrize("drawn", [None, 4])
@pytest.mark.parametrize("clip_norm", [None, 0.05])
@pytest.mark.parametrize("name", CASES)
def test_the_mean_gradient_of_all_windows_makes_one_step(
    tmp_path: Path, name: str, clip_norm: float | None, drawn: int | None
) -> None:
    case, file = clipped(CASES[name], clip_norm), load_tensors(FOLDER / f"{name}.safetensors")
    load_case(tmp_path, case, file, "native").close()
    artifacts, out = open_artifacts(tmp_path / "artifacts"), tmp_path / "out"
    first, windows, sample = part(file, "first."), training_windows(STREAM, case.training), None
    if drawn is not None:
        counts = load_counts(artifacts.path(COUNTS), Vocabulary.load(artifacts.path(VOCABULARY)))
        sample = draw_output_sample(STREAM, counts, SampleDraw(drawn, 1))
    reference = TorchTrainer(case, first, sample)
    expected = reference.full_batch(windows, LEARNING_RATE)
    draw = {"output_sample": drawn, "sample_seed": None if drawn is None else 1}
    with Round(RoundSettings(artifacts.folder, stream=STREAM, steps=1, seed=0, out=out, **draw)) as round_:
        report = round_.train().report
    if case.training.loss_reduction == "sum_over_time":
        expected = [loss * 3 / window.predictions for loss, window in zip(expected, windows, strict=True)]
    assert report.windows_per_step == len(windows) == 6
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
    case, file = clipped(CASES["lstm"], 1.0), load_tensors(FOLDER / "lstm.safetensors")
    load_case(tmp_path, case, file, "native").close()
    settings = RoundSettings(
        tmp_path / "artifacts", stream=STREAM, steps=1, seed=0, learning_rate=1e38, out=tmp_path / "out"
    )
    with Round(settings) as round_, pytest.raises(TrainingError, match="the gradient's norm is not finite; lower the"):
        round_.train()
    assert not (tmp_path / "out").exists()
