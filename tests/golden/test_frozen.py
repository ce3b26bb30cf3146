"""Training with frozen tensors: every backend is held to PyTorch with requires_grad off."""

from pathlib import Path

import numpy as np
import pytest

from phonograd.device_runtime.engine import load_backend
from phonograd.device_runtime.formats.manifest import TrainingConfig
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.export.artifacts import export_artifacts
from phonograd.export.torch_layout import seeded_weights
from tests.golden.cases import Case
from tests.golden.torch_reference import TorchTrainer, windows_of
from tests.support.artifacts import words

LSTM = LanguageModelConfig("lstm", 40, 8, 8, 2)
GRU = LanguageModelConfig("gru", 40, 8, 8, 2, tied=True)
PROJECTED = LanguageModelConfig("lstm", 40, 6, 8, 1, tied=True, output_bias=False)
CLIPPED = TrainingConfig(minibatch=3, bptt=5, clip_norm=0.5)
LWF = TrainingConfig(minibatch=3, bptt=5, loss="lwf")
# In PyTorch's names, which is what the reference freezes.
TORCH = {"W": ("weight_ih",), "R": ("weight_hh",), "B": ("bias_ih", "bias_hh")}
STEPS, RATE, TOLERANCE = 6, 0.5, 1e-5


def torch_names(frozen: set[str]) -> set[str]:
    names = set()
    for name in frozen:
        first, _, rest = name.partition(".")
        layer, _, part = rest.partition(".")
        names |= {f"{first}.{torch}_l{layer}" for torch in TORCH[part]} if part in TORCH else {name}
    return names


@pytest.mark.parametrize("engine", ["native", "ort"])
@pytest.mark.parametrize(
    ("model", "frozen"),
    [
        (LSTM, {"embedding.weight"}),
        (LSTM, {"decoder.weight"}),
        (LSTM, {"decoder.weight", "decoder.bias"}),
        (LSTM, {"decoder.bias", "lstm.0.W"}),
        (LSTM, {"lstm.0.W", "lstm.0.R", "lstm.0.B"}),
        (LSTM, {"embedding.weight", "lstm.0.W", "lstm.0.R", "lstm.0.B", "lstm.1.R"}),
        (GRU, {"embedding.weight"}),
        (GRU, {"gru.1.R", "gru.0.B", "decoder.bias"}),
        (PROJECTED, {"projection.weight", "lstm.0.R"}),
        (PROJECTED, {"embedding.weight", "lstm.0.W", "lstm.0.R", "lstm.0.B"}),
    ],
)
@pytest.mark.parametrize("training", [CLIPPED, LWF], ids=["clipped", "lwf"])
def test_they_stay_and_the_others_train_as_in_torch(
    tmp_path: Path, model: LanguageModelConfig, frozen: set[str], training: TrainingConfig, engine: str
) -> None:
    weights = {name: array * np.float32(6) for name, array in seeded_weights(model, 1).items()}
    case = Case(model, training)
    reference = TorchTrainer(case, weights)
    for name, parameter in reference.model.named_parameters():
        parameter.requires_grad_(name not in torch_names(frozen))
    artifacts = export_artifacts(tmp_path / "a", model, training, weights, words(40), frozen=frozen)
    backend = load_backend(engine, artifacts)
    for window in windows_of(case, STEPS):
        np.testing.assert_allclose(backend.step(window, RATE), reference.step(window, RATE), rtol=TOLERANCE)
    expected, trained = reference.model.weights(), backend.weights()
    backend.close()
    for name, before in weights.items():
        if name in frozen:
            np.testing.assert_array_equal(trained[name], before)
        else:
            error = np.linalg.norm(trained[name] - expected[name]) / np.linalg.norm(expected[name])
            moved = np.linalg.norm(expected[name] - before) / np.linalg.norm(expected[name])
            assert error <= TOLERANCE < moved / 10, name
