"""A step of the engine, held to the plain one (tests/reference/step.py)."""

import contextlib
import re

import numpy as np
import pytest

from phonograd.device_runtime.engine.backend import IGNORED, BackendOptions, Window
from phonograd.device_runtime.engine.native import NativeBackend
from phonograd.device_runtime.formats.manifest import WEIGHTS, TrainingConfig
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import load_tensors
from tests.reference.step import train_step
from tests.support.artifacts import exported

V, RATE = 60, 0.75


# Of 15 tokens every matrix's gradient is smaller than its factors, of 4 none is.
@pytest.mark.parametrize(
    ("layers", "clip_norm", "T", "B", "form"),
    [
        (1, 0.1, 5, 3, "factored, multiplied out"),
        (2, 0.1, 2, 2, "factored"),
        (2, 0.1, 5, 3, "factored, multiplied out"),
        (2, None, 5, 3, "factored, multiplied out"),
    ],
)
def test_one_step_is_the_plain_one(layers: int, clip_norm: float | None, T: int, B: int, form: str) -> None:
    model = LanguageModelConfig("lstm", vocabulary=V, embedding=7, hidden=12, layers=layers)
    artifacts = exported(model, TrainingConfig(minibatch=B, bptt=T, clip_norm=clip_norm), spread=15)
    weights = load_tensors(artifacts.path(WEIGHTS))
    random = np.random.default_rng(layers)
    tokens, targets = random.integers(0, V, (2, T, B))
    targets[T - 2 :, 1] = IGNORED
    loss, expected = train_step(weights, tokens, targets, RATE, clip_norm)
    with contextlib.closing(NativeBackend(artifacts, None, BackendOptions())) as engine:
        forms = re.findall(r"^ +\S+ \[[\d,]+\] (factored.*)$", engine.plan(), re.MULTILINE)
        assert forms == [form if clip_norm else "factored"] * (1 + 2 * layers)
        assert engine.step(Window(tokens, targets), RATE) == pytest.approx(loss, rel=1e-5)
        found = engine.weights()
    assert set(found) == set(expected)
    for name, values in expected.items():
        moved = values - weights[name]
        assert np.abs(moved).max() > 0, name
        np.testing.assert_allclose(
            found[name] - weights[name], moved, rtol=0, atol=1e-4 * np.abs(moved).max() + 1e-6, err_msg=name
        )
