"""The self-test's golden steps are PyTorch's, and its tokens those of the reference."""

import json

import numpy as np
import pytest

from phonograd.device_runtime.formats.manifest import VOCABULARY, WEIGHTS
from phonograd.device_runtime.formats.tensor_file import load_tensors
from phonograd.selftest.checks import RATE
from phonograd.selftest.pieces import GOLDEN, MODELS, TRICKY, artifacts_of, windows_of
from tests.golden.make_selftest import CASES
from tests.golden.torch_reference import TorchTrainer
from tests.reference import text as reference

FOUND = json.loads((GOLDEN / "golden.json").read_text("utf-8"))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("precision", "rounding"), [("fp32", 1e-5), ("bf16", 5e-3)])
def test_steps(model: str, precision: str, rounding: float) -> None:
    artifacts = artifacts_of(model)
    first = load_tensors(artifacts.path(WEIGHTS))
    trainer = TorchTrainer(CASES[model], first)
    losses = [trainer.step(window, RATE) for window in windows_of(artifacts)]
    last = trainer.model.weights()
    found = FOUND[f"{model} {precision}"]
    np.testing.assert_allclose(found["losses"], losses, rtol=rounding)
    for name, moved in found["moved"].items():
        assert moved == pytest.approx(np.linalg.norm(last[name] - first[name]), rel=10 * rounding), name


def test_tokens() -> None:
    lines = artifacts_of(MODELS[0]).path(VOCABULARY).read_bytes().splitlines()
    words = [line.split(b"\t")[0] for line in lines]
    assert FOUND["text"]["ids"] == reference.encode(words, reference.split_messages(TRICKY)).tolist()


def test_the_golden_files_are_small() -> None:
    """A wheel has them."""
    assert sum(path.stat().st_size for path in GOLDEN.rglob("*") if path.is_file()) < 300_000
