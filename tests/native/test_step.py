"""A step of the engine, held to the plain one (tests/reference/step.py)."""

import contextlib

import numpy as np
import pytest

from phonograd.device_runtime.engine.backend import IGNORED, BackendOptions, Window
from phonograd.device_runtime.engine.native import NativeBackend
from phonograd.device_runtime.formats.manifest import WEIGHTS, TrainingConfig
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import load_tensors
from tests.reference.step import train_step
from tests.support.artifacts import exported

V, T, B, RATE = 60, 5, 3, 0.75


@pytest.mark.parametrize("clip_norm", [None, 0.1])
@pytest.mark.parametrize("layers", [1, 2])
def test_one_step_is_the_plain_one(layers: int, clip_norm: float | None) -> None:
    model = LanguageModelConfig("lstm", vocabulary=V, embedding=7, hidden=12, layers=layers)
    artifacts = exported(model, TrainingConfig(minibatch=B, bptt=T, clip_norm=clip_norm), spread=15)
    weights = load_tensors(artifacts.path(WEIGHTS))
    random = np.random.default_rng(layers)
    tokens, targets = random.integers(0, V, (2, T, B))
    targets[3:, 1] = IGNORED
    loss, expected = train_step(weights, tokens, targets, RATE, clip_norm)
    with contextlib.closing(NativeBackend(artifacts, None, BackendOptions())) as engine:
        assert engine.step(Window(tokens, targets), RATE) == pytest.approx(loss, rel=1e-5)
        found = engine.weights()
    assert set(found) == set(expected)
    for name, values in expected.items():
        moved = values - weights[name]
        assert np.abs(moved).max() > 0, name
        np.testing.assert_allclose(
            found[name] - weights[name], moved, rtol=0, atol=1e-4 * np.abs(moved).max() + 1e-6, err_msg=name
        )
