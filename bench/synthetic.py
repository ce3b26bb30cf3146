"""Synthetic artifacts, weights and updates of any shape; only `random_artifacts`, which can be trained, needs torch."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from phonograd.bench.measuring import in_fresh_process
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.formats.manifest import FILES, WEIGHTS, FileEntry, Manifest, TensorEntry, TrainingConfig
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, save_tensors
from phonograd.device_runtime.text.vocabulary import EOS_WORD, UNK_WORD, Vocabulary
from phonograd.device_runtime.update.update_file import UpdateInfo, write_update

STEP = np.float32(1e-3)  # standard deviation of a synthetic delta


def random_artifacts(folder: Path, model: LanguageModelConfig, training: TrainingConfig | None = None) -> Path:
    """A folder of random weights, written by another process: exporting takes memory that must not be counted."""
    in_fresh_process(_export, folder, model, training)
    return folder


def _export(folder: Path, model: LanguageModelConfig, training: TrainingConfig | None) -> None:
    from phonograd.export.artifacts import export_artifacts  # noqa: PLC0415  # imports torch
    from phonograd.export.torch_layout import seeded_weights  # noqa: PLC0415

    words = Vocabulary((UNK_WORD, EOS_WORD, *(b"w%d" % number for number in range(model.vocabulary - 2))))
    export_artifacts(folder, model, training or TrainingConfig(), seeded_weights(model, 0), words)


def random_weights(config: LanguageModelConfig, seed: int) -> dict[str, Array]:
    """Normal weights of standard deviation 0.05, by name."""
    random = np.random.default_rng(seed)
    return {spec.name: random.standard_normal(spec.shape, np.float32) * 0.05 for spec in config.tensor_specs()}


def write_synthetic_artifacts(folder: Path, config: LanguageModelConfig, weights: Mapping[str, Array]) -> None:
    """Write an artifacts folder with these weights and placeholders for the graphs, enough for a server."""
    folder.mkdir()
    for name in FILES:
        (folder / name).write_bytes(name.encode())
    save_tensors(folder / WEIGHTS, weights)
    Manifest(
        model=config,
        training=TrainingConfig(),
        states=(),
        tensors=tuple(TensorEntry(spec.name, spec.shape, spec.dtype, "0" * 64) for spec in config.tensor_specs()),
        files={name: FileEntry((folder / name).stat().st_size, sha256_of_file(folder / name)) for name in FILES},
        tools={},
    ).write(folder)


def write_synthetic_updates(base: Path, paths: Mapping[str, Path], seed: int, tokens: int) -> None:
    """Write one phone's update for round 1, in each codec of `paths`.

    All weights move, except that of the embedding only every tenth row does.
    """
    random = np.random.default_rng(1 + seed)
    base_sha256 = sha256_of_file(base)
    with TensorFile(base) as file:
        trained = {}
        for name in file.specs:
            weights = trained[name] = file.read(name)
            moved = weights[::10] if name == "embedding.weight" else weights
            moved += STEP * random.standard_normal(moved.shape, np.float32)
        for codec, path in paths.items():
            write_update(path, file, trained, UpdateInfo(base_sha256, 1, tokens, codec, seed))
