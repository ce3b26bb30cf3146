"""What backends compute of our artifacts, against PyTorch: steps in bf16, and scores; test_training.py has fp32."""

import numpy as np
import pytest

from phonograd.device_runtime.engine.backend import Backend, BackendOptions, Precision
from phonograd.device_runtime.engine.c_abi import load_library
from tests.golden.cases import CASES, LEARNING_RATE, STEPS, Case
from tests.golden.engines import open_engine
from tests.golden.torch_reference import TorchTrainer, relative_error, windows_of
from tests.support.artifacts import exported, model_weights

TOLERANCE = 1e-5  # relative Frobenius error
SPREAD = 10.0  # seeded weights are small; ten times as large, the gates leave their linear part


def load_case(case: Case, engine: str, options: BackendOptions | None = None) -> Backend:
    return open_engine(engine, exported(case.model, case.training, spread=SPREAD), options)


# A product's operands have 8 significant bits in bf16; their errors average out over sums and steps. How they are
# rounded is prescribed, so whatever order a kernel adds in, that error is there: some hundred times fp32's.
BF16_TOLERANCE, BF16_PERPLEXITY = 1e-2, 5e-3

BF16 = [
    (name, "bf16-emulated") for name in ("lstm-mean", "lstm-lwf", "gru", "lstm-tied-projected", "cifg", "cifg-tied-lwf")
]
if load_library().cpu_info()["bf16"]:
    BF16 += [(name, "bf16") for name in ("lstm-clipped", "gru-tied-lwf", "cifg-tied")]


@pytest.mark.parametrize(("name", "precision"), BF16)
def test_bf16_stays_close(name: str, precision: Precision) -> None:
    case, windows = CASES[name], windows_of(CASES[name], STEPS)
    reference = TorchTrainer(case, model_weights(case.model, spread=SPREAD))
    expected = np.array([reference.step(window, LEARNING_RATE) for window in windows])
    backend = load_case(case, "native", BackendOptions(precision=precision))
    losses = np.array([backend.step(window, LEARNING_RATE) for window in windows])
    tokens = 1 if case.training.loss_reduction == "mean" else case.training.bptt
    np.testing.assert_allclose(np.exp(losses / tokens), np.exp(expected / tokens), rtol=BF16_PERPLEXITY)
    weights = backend.weights()
    errors = [relative_error(weights[tensor], values) for tensor, values in reference.model.weights().items()]
    assert TOLERANCE < max(errors) <= BF16_TOLERANCE
    backend.close()


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        *((name, "native") for name in ("lstm", "gru-tied", "lstm-tied-projected", "cifg", "cifg-tied")),
        *((name, "ort") for name in ("lstm-tied-projected", "gru-tied-lwf", "cifg")),
    ],
)
def test_evaluation_scores_agree_with_torch(name: str, engine: str) -> None:
    import torch

    from phonograd.export.torch_model import LanguageModel

    case = CASES[name]
    backend = load_case(case, engine)
    model = LanguageModel(case.model)
    model.load(model_weights(case.model, spread=SPREAD))
    state = model.zero_state(4)
    for T in (6, 6, 1, 9):  # states are carried over a change of T
        tokens = np.random.default_rng(T).integers(0, 40, (T, 4))
        with torch.no_grad():
            expected, state = model(torch.from_numpy(tokens), state)
        np.testing.assert_allclose(backend.logits(tokens), expected.reshape(T * 4, -1).numpy(), rtol=1e-4, atol=1e-6)
    backend.reset()
    first = np.zeros((6, 4), np.int64)
    again = backend.logits(first)
    backend.reset()
    np.testing.assert_array_equal(backend.logits(first), again)
    backend.close()
