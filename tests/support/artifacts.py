"""Artifacts of small models, exported once and shared by all tests, whichever process runs them."""

import functools
import os
import tempfile
from hashlib import sha256
from pathlib import Path

import numpy as np

from phonograd.device_runtime.base.files import lock_file
from phonograd.device_runtime.formats.manifest import Artifacts, TrainingConfig, open_artifacts
from phonograd.device_runtime.formats.model_config import ADAPTER_B, LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import Array
from phonograd.device_runtime.text.vocabulary import EOS_WORD, UNK_WORD, Vocabulary

SHARED = "PHONOGRAD_TEST_ARTIFACTS"  # the folder of a run's artifacts, for all its workers
_OPENED: list[Path] = []


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
    train: tuple[str, ...] = (),
) -> Artifacts:
    """Read-only artifacts with the vocabulary `words` and seeded weights times `spread`. To change them, copy them.

    train: the tensors that are not frozen; (): those of a new export, of adapters as if they were trained already.
    """
    training = training or TrainingConfig()
    name = sha256(repr((model, training, seed, spread, distill, train)).encode()).hexdigest()[:16]
    folder = _shared_folder() / name / "artifacts"
    folder.parent.mkdir(exist_ok=True)
    with (folder.parent / "lock").open("w") as lock:
        lock_file(lock.fileno(), wait=True)
        if not folder.exists():
            _export(folder, model, training, model_weights(model, seed, spread), distill, train)
    _OPENED.append(folder)
    return open_artifacts(folder)


def _export(
    folder: Path,
    model: LanguageModelConfig,
    training: TrainingConfig,
    weights: dict[str, Array],
    distill: bool,
    train: tuple[str, ...],
) -> None:
    from phonograd.export.artifacts import export_artifacts  # imports torch

    frozen = [name for name in weights if name not in train] if train else model.frozen_by_adapters()
    export_artifacts(folder, model, training, weights, words(model.vocabulary), frozen=frozen, distill=distill)


def model_weights(model: LanguageModelConfig, seed: int = 1, spread: float = 1.0) -> dict[str, Array]:
    """Seeded weights times `spread`. An adapter's B is not zero."""
    from phonograd.export.adapters import with_adapters
    from phonograd.export.torch_layout import seeded_weights

    weights = {name: array * np.float32(spread) for name, array in seeded_weights(model, seed).items()}
    if model.adapters:
        _, weights = with_adapters(model.plain, weights, model.adapters, seed)
    random = np.random.default_rng(seed)
    for name, array in weights.items():
        if name.endswith(ADAPTER_B):
            array[...] = random.uniform(-0.05, 0.05, array.shape)
    return weights


def check_unchanged() -> None:
    """Fail if a test wrote to what others read: ArtifactsError names the file."""
    for folder in _OPENED:
        artifacts = open_artifacts(folder, verify=True)
        expected = {*artifacts.manifest.files, "manifest.json"}
        assert {path.name for path in folder.iterdir()} == expected, f"{folder}: a test left files among the artifacts"


@functools.cache
def _own_folder() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="phonograd-tests-")


def _shared_folder() -> Path:
    return Path(os.environ.get(SHARED) or _own_folder().name)
