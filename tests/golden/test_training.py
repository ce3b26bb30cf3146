"""Training by every backend is held to PyTorch: whole, with frozen tensors, and with the same output sample."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from phonograd.device_runtime.base.errors import TrainingError
from phonograd.device_runtime.engine.backend import BackendOptions
from phonograd.export.torch_layout import seeded_weights
from tests.golden.cases import CASES, spread_of
from tests.golden.engines import open_engine
from tests.golden.torch_reference import TorchTrainer, few_words, relative_error, sample_of, windows_of
from tests.support.artifacts import exported, model_weights

STEPS, RATE, TOLERANCE = 10, 0.5, 1e-5
# In PyTorch's names, which is what the reference freezes.
TORCH = {"W": ("weight_ih",), "R": ("weight_hh",), "B": ("bias_ih", "bias_hh"), "P": ("weight_hr",)}
FIRST_LAYER = ("lstm.0.W", "lstm.0.R", "lstm.0.B")
# Pairs of model, frozen tensors, engine and sample, not products.
RUNS: list[tuple[str, tuple[str, ...], str, bool]] = [
    *((name, (), engine, False) for name in CASES for engine in ("native", "ort")),
    *((name, (), "native", True) for name in CASES),
    *((name, (), "ort", True) for name in ("lstm-clipped", "lstm-lwf-mean", "gru-tied-lwf", "cifg")),
    ("lstm-lwf", ("embedding.weight",), "native", False),
    ("lstm-clipped", ("decoder.weight",), "native", True),
    ("lstm-lwf", ("decoder.weight", "decoder.bias"), "native", True),
    ("gru-tied-lwf", ("decoder.bias",), "native", False),
    ("lstm-clipped", ("decoder.bias", "lstm.0.W"), "native", False),
    ("lstm-tied-projected", FIRST_LAYER, "native", False),
    ("lstm-lwf", ("embedding.weight", *FIRST_LAYER), "native", False),
    ("lstm-clipped", ("embedding.weight", *FIRST_LAYER, "lstm.1.R"), "native", True),
    ("lstm-lwf", ("embedding.weight", *FIRST_LAYER, "lstm.1.W", "lstm.1.R", "lstm.1.B"), "native", False),
    ("gru-tied-lwf", ("gru.1.R", "gru.0.B", "decoder.bias"), "native", True),
    ("gru-tied-lwf", ("embedding.weight",), "native", True),
    ("lstm-tied-projected", ("projection.weight", "lstm.0.R"), "native", True),
    ("cifg", ("cifg.0.W", "cifg.0.R", "cifg.1.B"), "native", False),
    ("cifg", ("cifg.0.P",), "native", True),
    ("cifg", ("cifg.0.R", "cifg.0.P"), "native", False),
    ("lstm-lwf", ("decoder.weight", "decoder.bias"), "ort", True),
    ("gru-tied-lwf", ("embedding.weight",), "ort", False),
    ("cifg", ("cifg.0.R", "cifg.0.P"), "ort", False),
]


def torch_names(frozen: Sequence[str]) -> set[str]:
    names = set()
    for name in frozen:
        first, _, rest = name.partition(".")
        layer, _, part = rest.partition(".")
        names |= {f"{first}.{torch}_l{layer}" for torch in TORCH[part]} if part in TORCH else {name}
    return names


@pytest.mark.parametrize(("name", "frozen", "engine", "sampled"), RUNS)
def test_ten_steps_agree_with_torch(name: str, frozen: tuple[str, ...], engine: str, sampled: bool) -> None:
    case = CASES[name]
    weights = model_weights(case.model, spread=spread_of(case.model))
    sample = sample_of(case) if sampled else None
    reference = TorchTrainer(case, weights, sample)
    for tensor, parameter in reference.model.named_parameters():
        parameter.requires_grad_(tensor not in torch_names(frozen))
    train = tuple(tensor for tensor in weights if tensor not in frozen) if frozen else ()
    artifacts = exported(case.model, case.training, spread=spread_of(case.model), train=train)
    backend = open_engine(engine, artifacts, BackendOptions(sample=sample))
    for window in few_words(case, STEPS) if sampled else windows_of(case, STEPS):
        np.testing.assert_allclose(backend.step(window, RATE), reference.step(window, RATE), rtol=TOLERANCE)
    expected, trained = reference.model.weights(), backend.weights()
    backend.close()
    for tensor, before in weights.items():
        if tensor in frozen:
            np.testing.assert_array_equal(trained[tensor], before)
            continue
        moved = relative_error(before, expected[tensor])
        assert relative_error(trained[tensor], expected[tensor]) <= TOLERANCE < moved / 10, tensor
        if sample is not None and tensor.startswith(("decoder.", "embedding.")):
            outside = np.setdiff1d(np.arange(case.model.vocabulary), sample.candidates)
            np.testing.assert_array_equal(trained[tensor][outside], before[outside])


@pytest.mark.parametrize(("name", "engine"), [("lstm", "ort"), ("lstm", "native"), ("gru-tied", "native")])
def test_scores_are_of_all_words_as_they_are_trained(name: str, engine: str) -> None:
    case = CASES[name]
    artifacts, sample = exported(case.model, case.training), sample_of(case)
    reference = TorchTrainer(case, seeded_weights(case.model, 1), sample)
    backend = open_engine(engine, artifacts, BackendOptions(sample=sample))
    for window in few_words(case, 3):
        backend.step(window, RATE)
        reference.step(window, RATE)
    tokens = np.arange(40).reshape(20, 2)  # every word, candidate or not
    expected, _ = reference.model(torch.from_numpy(tokens), reference.model.zero_state(2))
    backend.reset()
    found = backend.logits(tokens)
    backend.close()
    np.testing.assert_allclose(found, expected.detach().reshape(40, 40).numpy(), rtol=1e-4, atol=1e-6)


def test_a_word_outside_the_sample_is_refused_by_onnx_runtime() -> None:
    """tests/native/test_sampled_engine.py has the native engine's refusals."""
    case = CASES["gru-tied"]
    sample = sample_of(case)
    outside = int(np.setdiff1d(np.arange(40), sample.candidates)[0])
    backend = open_engine("ort", exported(case.model, case.training), BackendOptions(sample=sample))
    (window,) = few_words(case, 1)
    before = backend.weights()
    window.targets[2, 1] = outside
    with pytest.raises(TrainingError, match=rf"word {outside} expected among its {len(sample)} candidates"):
        backend.step(window, RATE)
    after = backend.weights()
    backend.close()
    for tensor, values in before.items():
        np.testing.assert_array_equal(after[tensor], values)
