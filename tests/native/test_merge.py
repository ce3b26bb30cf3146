"""Models with adapters made plain: by `merge` to the bit, in prediction weights, and in a predictor."""

from pathlib import Path

import numpy as np
import pytest

import phonograd
from phonograd.device_runtime.base.errors import UsageError, WeightsError
from phonograd.device_runtime.engine.backend import BackendOptions
from phonograd.device_runtime.engine.c_abi import load_library
from phonograd.device_runtime.formats.manifest import WEIGHTS, Artifacts
from phonograd.device_runtime.formats.model_config import ADAPTER_A, ADAPTER_B, LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, load_tensors, save_tensors
from tests.support.artifacts import exported

R = 3
MODELS = {
    "lstm": LanguageModelConfig("lstm", 80, 10, 12, 2, adapters=R),
    "gru": LanguageModelConfig("gru", 80, 10, 12, 1, adapters=R),
    "cifg": LanguageModelConfig("cifg", 80, 10, 12, 2, adapters=R),
    "tied": LanguageModelConfig("lstm", 80, 10, 12, 1, tied=True, output_bias=False, adapters=R),
}


def model(name: str) -> Artifacts:
    return exported(MODELS[name], spread=14.0)


def merge(tensors: dict[str, Array]) -> dict[str, Array]:
    """Merge as FORMAT.md says: float64, one rank after the other, rounded once."""
    plain = {name: array for name, array in tensors.items() if not name.endswith((ADAPTER_A, ADAPTER_B))}
    for name, array in plain.items():
        if name + ADAPTER_A in tensors:
            A, B = (tensors[name + half].astype(np.float64) for half in (ADAPTER_A, ADAPTER_B))
            total = array.astype(np.float64)
            for r in range(len(A)):
                total += np.outer(B[:, r], A[r]).reshape(array.shape)
            plain[name] = total.astype(np.float32)
    return plain


@pytest.mark.parametrize("name", MODELS)
def test_the_merged_model_has_the_bits_of_the_rule(tmp_path: Path, name: str) -> None:
    artifacts = model(name)
    written = phonograd.merge(artifacts, tmp_path / "plain")
    expected, found = merge(load_tensors(artifacts.path(WEIGHTS))), load_tensors(tmp_path / "plain")
    assert list(found) == [spec.name for spec in MODELS[name].plain.tensor_specs()]
    for tensor, values in found.items():
        np.testing.assert_array_equal(values, expected[tensor], err_msg=tensor)
    with TensorFile(tmp_path / "plain") as file:
        assert file.metadata == {"merged_sha256": artifacts.weights_sha256}
        assert file.sha256() == written.sha256
    assert np.abs(found["embedding.weight"] - load_tensors(artifacts.path(WEIGHTS))["embedding.weight"]).max() > 0.01
    phonograd.merge(artifacts.path(WEIGHTS), tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "plain").read_bytes()


@pytest.mark.parametrize("name", MODELS)
def test_prediction_weights_are_those_of_the_merged_model(tmp_path: Path, name: str) -> None:
    artifacts = model(name)
    phonograd.merge(artifacts, tmp_path / "plain")
    phonograd.quantize(artifacts, tmp_path / "int8")
    load_library().call("pg_quantize", None, tmp_path / "plain", tmp_path / "of-plain")
    found, expected = load_tensors(tmp_path / "int8"), load_tensors(tmp_path / "of-plain")
    assert list(found) == list(expected)
    for tensor, values in found.items():
        np.testing.assert_array_equal(values, expected[tensor], err_msg=tensor)
    with TensorFile(tmp_path / "int8") as file:
        assert file.metadata["base_sha256"] == artifacts.weights_sha256
    with phonograd.open_predictor(artifacts, weights=tmp_path / "int8") as keyboard:
        keyboard.feed("w1 w2 w3")
        assert len(keyboard.suggest()) == 3


@pytest.mark.parametrize("name", MODELS)
def test_a_predictor_adds_the_adapters(tmp_path: Path, name: str) -> None:
    artifacts = model(name)
    plain = exported(MODELS[name].plain, spread=14.0)
    phonograd.merge(artifacts, tmp_path / "plain")
    scores = []
    for folder, weights in ((artifacts, None), (plain, tmp_path / "plain"), (plain, None)):
        for kernels in load_library().cpu_info()["kernels"] if folder is artifacts else [""]:
            with phonograd.open_predictor(folder, weights=weights, options=BackendOptions(kernels=kernels)) as keyboard:
                keyboard.feed("w1 w2 w3 w70")
                scores.append(keyboard.logits())
    *adapted, other, without = scores
    for found in adapted:
        np.testing.assert_allclose(found, other, rtol=1e-4, atol=1e-4)
    assert np.abs(other - without).max() > 0.01


def test_what_is_no_model_with_adapters_is_refused(tmp_path: Path) -> None:
    artifacts, out = model("lstm"), tmp_path / "out"
    tensors = load_tensors(artifacts.path(WEIGHTS))
    with pytest.raises(WeightsError, match="a model with adapters expected, found none; it is merged already"):
        phonograd.merge(exported(MODELS["lstm"].plain), out)
    save_tensors(tmp_path / "model", tensors)
    with pytest.raises(UsageError):
        phonograd.merge(tmp_path / "model", tmp_path / "model")
    for change, said in (
        ({"lstm.0.W" + ADAPTER_A: np.zeros((R, 9), np.float32)}, r"lstm.0.W.adapter.A F32\[3, 10\] expected, found"),
        ({"lstm.0.W" + ADAPTER_B: np.zeros((7, R), np.float32)}, r"lstm.0.W.adapter.B F32\[48, 3\] expected, found"),
        ({"lstm.1.R" + ADAPTER_B: np.full((48, R), np.inf, np.float32)}, "tensor lstm.1.R with its adapter: element 0"),
        ({"lstm.1.W": np.zeros((1, 48, 12), np.float16)}, r"F32 rows expected, found lstm.1.W F16\[1, 48, 12\]"),
        ({"decoder.bias": np.zeros((), np.float32)}, r"F32 rows expected, found decoder.bias F32\[\]"),
        ({"decoder.bias": np.zeros((80, 0), np.float32)}, r"F32 rows expected, found decoder.bias F32\[80, 0\]"),
    ):
        save_tensors(tmp_path / "model", {**tensors, **change})
        with pytest.raises(WeightsError, match=said):
            phonograd.merge(tmp_path / "model", out)
    del tensors["lstm.0.W" + ADAPTER_A]
    save_tensors(tmp_path / "model", tensors)
    with pytest.raises(WeightsError, match=r"lstm.0.W.adapter.A"):
        phonograd.merge(tmp_path / "model", out)
    assert not out.exists()
