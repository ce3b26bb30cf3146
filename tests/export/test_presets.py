import math
from pathlib import Path

import msgspec
import pytest

from phonograd.device_runtime.base.errors import ArtifactsError
from phonograd.device_runtime.engine.predictor import write_prediction_weights
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import TensorFile, save_tensors
from phonograd.export.presets import PRESETS, preset_named
from phonograd.export.torch_layout import seeded_weights
from phonograd.export.torch_model import LanguageModel


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("popov-2x650", 45_800_400),
        ("mcmahan-10k", 1_347_072),
        ("gboard-cifg", 10_000 * 96 + 3 * 670 * (96 + 96 + 2) + 96 * 670),  # embedding; W, R and two biases; P
        ("ptb-2x1500-tied", 10_000 * 1500 + 2 * (8 * 1500 * 1500 + 8 * 1500) + 10_000),
        ("fedatt-gru-300", 2 * 10_000 * 300 + 6 * 300 * 300 + 6 * 300 + 10_000),
        ("fedatt-gru-1500-tied", 10_000 * 1500 + 6 * 1500 * 1500 + 6 * 1500 + 10_000),
    ],
)
def test_parameter_counts_are_the_papers(name: str, parameters: int) -> None:
    assert PRESETS[name].model.parameters == parameters


def test_ji_has_three_sizes_tied_and_untied() -> None:
    models = [preset.model for name, preset in PRESETS.items() if name.startswith("fedatt-")]
    assert {(model.hidden, model.tied) for model in models} == {(n, t) for n in (300, 650, 1500) for t in (True, False)}
    assert {(model.cell, model.layers) for model in models} == {("gru", 1)}


@pytest.mark.parametrize("name", ["tiny", "mcmahan-10k", "gboard-cifg", "fedatt-gru-300-tied"])
def test_the_torch_model_has_just_the_presets_parameters(name: str) -> None:
    config = msgspec.structs.replace(PRESETS[name].model, vocabulary=50)
    assert sum(parameter.numel() for parameter in LanguageModel(config).parameters()) == config.parameters


def int8_bytes(model: LanguageModelConfig) -> int:
    """Bytes of the model's int8 tensors: one a weight and four a row of a matrix; four a number of what has one row."""
    rows = {spec.name: math.prod(spec.shape[:-1]) for spec in model.tensor_specs()}
    return sum(
        spec.elements + 4 * rows[spec.name] if rows[spec.name] > 1 else 4 * spec.elements
        for spec in model.tensor_specs()
    )


@pytest.mark.parametrize(("name", "most"), [("keyboard-5mb", 5_000_000), ("keyboard-10mb", 10_000_000)])
def test_keyboards_models_have_the_size_that_they_are_named_by(tmp_path: Path, name: str, most: int) -> None:
    model = PRESETS[name].model
    assert most * 0.9 < int8_bytes(model) < most - 10_000  # of names and shapes
    small = msgspec.structs.replace(model, vocabulary=20)
    save_tensors(tmp_path / "weights", seeded_weights(small, 1))
    write_prediction_weights(tmp_path / "weights", tmp_path / "int8")
    with TensorFile(tmp_path / "int8") as file:
        assert sum(spec.nbytes for spec in file.specs.values()) == int8_bytes(small)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ArtifactsError, match=r"'popov' is unknown; expected one of: popov-2x650, .*tiny"):
        preset_named("popov")
