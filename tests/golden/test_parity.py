"""Each backend, running our artifacts, against PyTorch's autograd: 10 steps, loss and every weight."""

import numpy as np
import pytest

from phonograd.device_runtime.engine.backend import Backend, BackendOptions, Precision, Window
from phonograd.device_runtime.engine.c_abi import load_library
from phonograd.device_runtime.formats.tensor_file import Array, load_tensors
from tests.golden.cases import CASES, LEARNING_RATE, STEPS, Case
from tests.golden.engines import open_engine
from tests.golden.make_golden import FOLDER, SPREAD, golden
from tests.golden.torch_reference import relative_error
from tests.support.artifacts import exported

TOLERANCE = 1e-5  # relative Frobenius error


def part(file: dict[str, Array], prefix: str) -> dict[str, Array]:
    return {name.removeprefix(prefix): array for name, array in file.items() if name.startswith(prefix)}


def load_case(case: Case, engine: str, options: BackendOptions | None = None) -> Backend:
    return open_engine(engine, exported(case.model, case.training, spread=float(SPREAD)), options)


@pytest.mark.parametrize("engine", ["ort", "native"])
@pytest.mark.parametrize("name", CASES)
def test_ten_steps_agree_with_torch(name: str, engine: str) -> None:
    file = load_tensors(FOLDER / f"{name}.safetensors")
    backend = load_case(CASES[name], engine)
    windows = [Window(*pair) for pair in zip(file["tokens"], file["targets"], strict=True)]
    losses = [backend.step(window, LEARNING_RATE) for window in windows]
    assert len(losses) == STEPS
    np.testing.assert_allclose(losses, file["losses"], rtol=TOLERANCE)
    for tensor, expected in part(file, "last.").items():
        assert relative_error(backend.weights()[tensor], expected) <= TOLERANCE, tensor
        assert relative_error(file[f"first.{tensor}"], expected) > 100 * TOLERANCE, f"{tensor} was not trained"
    backend.close()


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
    file = load_tensors(FOLDER / f"{name}.safetensors")
    options = BackendOptions(precision=precision)
    backend = load_case(CASES[name], "native", options)
    windows = [Window(*pair) for pair in zip(file["tokens"], file["targets"], strict=True)]
    losses = np.array([backend.step(window, LEARNING_RATE) for window in windows])
    tokens = 1 if CASES[name].training.loss_reduction == "mean" else windows[0].tokens.shape[0]
    np.testing.assert_allclose(np.exp(losses / tokens), np.exp(file["losses"] / tokens), rtol=BF16_PERPLEXITY)
    weights = backend.weights()
    errors = [relative_error(weights[tensor], expected) for tensor, expected in part(file, "last.").items()]
    assert TOLERANCE < max(errors) <= BF16_TOLERANCE
    backend.close()


@pytest.mark.parametrize("name", CASES)
def test_golden_files_are_what_the_script_makes(name: str) -> None:
    file, made = load_tensors(FOLDER / f"{name}.safetensors"), golden(CASES[name])
    assert set(file) == set(made)
    for tensor, array in made.items():
        if tensor.startswith("first."):  # what `exported` begins with
            np.testing.assert_array_equal(array, file[tensor])
        np.testing.assert_allclose(array, file[tensor], rtol=1e-5, atol=1e-7, err_msg=tensor)


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
    file = load_tensors(FOLDER / f"{name}.safetensors")
    backend = load_case(case, engine)
    model = LanguageModel(case.model)
    model.load(part(file, "first."))
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
