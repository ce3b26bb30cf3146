"""Frozen tensors and output samples: every backend is held to PyTorch, with the same candidates and shifts."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from phonograd.device_runtime.base.errors import TrainingError
from phonograd.device_runtime.engine import load_backend
from phonograd.device_runtime.engine.backend import IGNORED, BackendOptions, OutputSample, Window
from phonograd.device_runtime.text.counts import zipf_counts
from phonograd.device_runtime.text.output_sample import SampleDraw, draw_output_sample
from phonograd.export.artifacts import export_artifacts
from phonograd.export.torch_layout import seeded_weights
from tests.golden.cases import CASES, Case, spread_of
from tests.golden.torch_reference import TorchTrainer, windows_of
from tests.support.artifacts import exported, words

ENGINES = ("ort", "native")
STEPS, RATE, TOLERANCE = 10, 0.5, 1e-5
OWN = 13  # words that the windows are made of: the first of the vocabulary
# In PyTorch's names, which is what the reference freezes.
TORCH = {"W": ("weight_ih",), "R": ("weight_hh",), "B": ("bias_ih", "bias_hh"), "P": ("weight_hr",)}
FIRST_LAYER = ("lstm.0.W", "lstm.0.R", "lstm.0.B")
FROZEN = (
    (),
    ("embedding.weight",),
    ("decoder.weight",),
    ("decoder.weight", "decoder.bias"),
    ("decoder.bias", "lstm.0.W"),
    FIRST_LAYER,
    ("embedding.weight", *FIRST_LAYER),
    ("embedding.weight", *FIRST_LAYER, "lstm.1.R"),
    ("embedding.weight", *FIRST_LAYER, "lstm.1.W", "lstm.1.R", "lstm.1.B"),
    ("gru.1.R", "gru.0.B", "decoder.bias"),
    ("projection.weight", "lstm.0.R"),
    ("cifg.0.W", "cifg.0.R", "cifg.1.B"),
    ("cifg.0.P",),
    ("cifg.0.R", "cifg.0.P"),
)
MODELS = [
    (name, frozen)
    for name, case in CASES.items()
    for frozen in FROZEN
    if set(frozen) <= {spec.name for spec in case.model.tensor_specs()}
    and (not frozen or name in ("lstm-clipped", "lstm-lwf", "gru-tied-lwf", "lstm-tied-projected", "cifg"))
]
# Pairs of model, engine and sample, not products. Nothing frozen and no sample is test_parity's.
RUNS = [(name, frozen, engine, True) for name, frozen in MODELS if not frozen for engine in ENGINES]
RUNS += [(*model, "native", number % 2 == 0) for number, model in enumerate(m for m in MODELS if m[1])]
RUNS += [(*model, "ort", number % 6 == 0) for number, model in enumerate(m for m in MODELS if m[1]) if number % 3 == 0]


def torch_names(frozen: Sequence[str]) -> set[str]:
    names = set()
    for name in frozen:
        first, _, rest = name.partition(".")
        layer, _, part = rest.partition(".")
        names |= {f"{first}.{torch}_l{layer}" for torch in TORCH[part]} if part in TORCH else {name}
    return names


def few_words(case: Case, steps: int = STEPS) -> list[Window]:
    """Windows of the vocabulary's first OWN words."""
    return [
        Window(window.tokens % OWN, np.where(window.targets == IGNORED, IGNORED, window.targets % OWN))
        for window in windows_of(case, steps)
    ]


def sample_of(case: Case) -> OutputSample:
    sample = draw_output_sample(np.arange(OWN), zipf_counts(case.model.vocabulary), SampleDraw(12, 5))
    assert OWN + 5 < len(sample) < case.model.vocabulary - 5
    assert sample.shifts.max() > 0.5
    return sample


@pytest.mark.parametrize(("name", "frozen", "engine", "sampled"), RUNS)
def test_ten_steps_agree_with_torch(
    tmp_path: Path, name: str, frozen: tuple[str, ...], engine: str, sampled: bool
) -> None:
    case = CASES[name]
    spread = np.float32(spread_of(case.model))
    weights = {name: array * spread for name, array in seeded_weights(case.model, 1).items()}
    sample = sample_of(case) if sampled else None
    reference = TorchTrainer(case, weights, sample)
    for tensor, parameter in reference.model.named_parameters():
        parameter.requires_grad_(tensor not in torch_names(frozen))
    vocabulary = words(case.model.vocabulary)
    artifacts = export_artifacts(tmp_path / "a", case.model, case.training, weights, vocabulary, frozen=frozen)
    backend = load_backend(engine, artifacts, options=BackendOptions(sample=sample))
    for window in few_words(case) if sampled else windows_of(case, STEPS):
        np.testing.assert_allclose(backend.step(window, RATE), reference.step(window, RATE), rtol=TOLERANCE)
    expected, trained = reference.model.weights(), backend.weights()
    backend.close()
    for tensor, before in weights.items():
        if tensor in frozen:
            np.testing.assert_array_equal(trained[tensor], before)
            continue
        error = np.linalg.norm(trained[tensor] - expected[tensor]) / np.linalg.norm(expected[tensor])
        moved = np.linalg.norm(expected[tensor] - before) / np.linalg.norm(expected[tensor])
        assert error <= TOLERANCE < moved / 10, tensor
        if sample is not None and tensor.startswith(("decoder.", "embedding.")):
            outside = np.setdiff1d(np.arange(case.model.vocabulary), sample.candidates)
            np.testing.assert_array_equal(trained[tensor][outside], before[outside])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["lstm", "gru-tied"])
def test_scores_are_of_all_words_as_they_are_trained(name: str, engine: str) -> None:
    case = CASES[name]
    artifacts, sample = exported(case.model, case.training), sample_of(case)
    reference = TorchTrainer(case, seeded_weights(case.model, 1), sample)
    backend = load_backend(engine, artifacts, options=BackendOptions(sample=sample))
    for window in few_words(case, 3):
        backend.step(window, RATE)
        reference.step(window, RATE)
    tokens = np.arange(40).reshape(20, 2)  # every word, candidate or not
    expected, _ = reference.model(torch.from_numpy(tokens), reference.model.zero_state(2))
    backend.reset()
    found = backend.logits(tokens)
    backend.close()
    np.testing.assert_allclose(found, expected.detach().reshape(40, 40).numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("name", "what"), [("lstm", "targets"), ("gru-tied", "targets"), ("gru-tied", "tokens")])
def test_a_word_outside_the_sample_is_refused(name: str, what: str, engine: str) -> None:
    case = CASES[name]
    sample = sample_of(case)
    outside = int(np.setdiff1d(np.arange(40), sample.candidates)[0])
    backend = load_backend(engine, exported(case.model, case.training), options=BackendOptions(sample=sample))
    (window,) = few_words(case, 1)
    before = backend.weights()
    getattr(window, what)[2, 1] = outside
    with pytest.raises(TrainingError, match=rf"word {outside} expected among its {len(sample)} candidates"):
        backend.step(window, RATE)
    after = backend.weights()
    backend.close()
    for tensor, values in before.items():
        np.testing.assert_array_equal(after[tensor], values)
