"""Artifacts of small models, exported once per process and shared by all tests."""

import functools
import tempfile
from pathlib import Path

import numpy as np

from phonograd.device_runtime.formats.manifest import Artifacts, TrainingConfig, open_artifacts
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.text.vocabulary import EOS_WORD, UNK_WORD, Vocabulary

_FOLDERS: list[Path] = []


def words(count: int) -> Vocabulary:
    """The vocabulary of `count` words: <unk>, <eos>, w0, w1 and so on."""
    return Vocabulary((UNK_WORD, EOS_WORD, *(b"w%d" % number for number in range(count - 2))))


@functools.cache
def exported(
    model: LanguageModelConfig,
    training: TrainingConfig | None = None,
    seed: int = 1,
    spread: float = 1.0,
    distill: bool = False,
) -> Artifacts:
    """Read-only artifacts with the vocabulary `words` and seeded weights times `spread`. To change them, copy them."""
    from phonograd.export.artifacts import export_artifacts  # imports torch
    from phonograd.export.torch_layout import seeded_weights

    weights = {name: array * np.float32(spread) for name, array in seeded_weights(model, seed).items()}
    folder = Path(_place().name) / str(len(_FOLDERS)) / "artifacts"
    training = training or TrainingConfig()
    made = export_artifacts(folder, model, training, weights, words(model.vocabulary), distill=distill)
    _FOLDERS.append(folder)
    return made


def check_unchanged() -> None:
    """Fail if a test wrote to what others read: ArtifactsError names the file."""
    for folder in _FOLDERS:
        artifacts = open_artifacts(folder, verify=True)
        expected = {*artifacts.manifest.files, "manifest.json"}
        assert {path.name for path in folder.iterdir()} == expected, f"{folder}: a test left files among the artifacts"


@functools.cache
def _place() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="phonograd-tests-")
