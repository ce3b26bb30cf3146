"""A pre-training run on disk: the state it resumes from and the best weights so far, both tensor files."""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from phonograd.device_runtime.base.documents import written
from phonograd.device_runtime.base.errors import ArtifactsError, StorageError, WeightsError
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import (
    Array,
    TensorFile,
    WrittenFile,
    check_specs,
    save_tensors,
    spec_of,
)
from phonograd.device_runtime.text.vocabulary import Vocabulary
from phonograd.export.corpus import Corpus
from phonograd.export.pretrain_config import Perplexities, PretrainConfig
from phonograd.export.torch_layout import VOCABULARY_SHA256, vocabulary_sha256
from phonograd.export.torch_model import LanguageModel, RecurrentState

STATE = "pretrain-state.safetensors"
BEST = "best_perplexity"
NO_PERPLEXITIES = Perplexities()
# Settings that may differ when a run is resumed: they do not change what a step computes.
FREE_SETTINGS = ("epochs", "device", "max_steps", "checkpoint_steps")


@dataclass
class PretrainState:
    """Where a run stands: finished epochs, steps done in the epoch after them, and all that the next step needs.

    Dropout needs no random state: each step draws from a seed made of the run's and the step's number. Plain SGD has
    no state either.
    """

    model: LanguageModel
    recurrent: RecurrentState
    epoch: int = 0
    step: int = 0
    best: Perplexities = NO_PERPLEXITIES


def run_identity(
    model: LanguageModelConfig, vocabulary: Vocabulary, corpus: Corpus, config: PretrainConfig
) -> dict[str, str]:
    """What makes a run this run and no other, by name; kept in the metadata of its files."""
    settings = {name: value for name, value in asdict(config).items() if name not in FREE_SETTINGS}
    return {
        **{name: str(value) for name, value in (written(model) | settings).items()},
        VOCABULARY_SHA256: vocabulary_sha256(vocabulary),
        "training_sha256": hashlib.sha256(corpus.training.tobytes()).hexdigest(),
        "validation_sha256": hashlib.sha256(corpus.validation.tobytes()).hexdigest(),
    }


def save_state(folder: Path, state: PretrainState, identity: Mapping[str, str]) -> None:
    """Write the state into `folder`, made if it is not there, in place of the one before. Raises StorageError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{folder}: cannot be made a folder: {error.strerror}; choose another place") from error
    position = {"epoch": state.epoch, "step": state.step, **_stored(BEST, state.best)}
    save_tensors(folder / STATE, _tensors(state), {**identity, **{name: repr(v) for name, v in position.items()}})


def restore_state(folder: Path, state: PretrainState, identity: Mapping[str, str], best: Path) -> bool:
    """Set `state` to what `folder` holds; False, and nothing done, if it holds none.

    Raises ArtifactsError if the state is of another run, damaged, or its best weights are no longer at `best`.
    """
    path = folder / STATE
    if not path.exists():
        return False
    try:
        with TensorFile(path) as file:
            _check_identity(path, file.metadata, identity)
            here = _tensors(state)
            check_specs(str(path), file.specs, [spec_of(name, array) for name, array in here.items()])
            stored = {name: file.read(name) for name in here}
            state.epoch, state.step = int(file.metadata["epoch"]), int(file.metadata["step"])
            state.best = Perplexities(*(float(file.metadata[name]) for name in _stored(BEST, state.best)))
    except (WeightsError, KeyError, ValueError) as error:
        raise ArtifactsError(f"{path}: damaged ({error}); remove it and start over") from error
    device = state.recurrent[0].device
    with torch.no_grad():
        for name, parameter in state.model.named_parameters():
            parameter.copy_(torch.from_numpy(stored[name]))
    state.recurrent = tuple(torch.from_numpy(stored[name]).to(device) for name in _recurrent_names(state))
    if math.isfinite(state.best.with_unknown):
        _check_best(best, identity)
    return True


def save_best(path: Path, state: PretrainState, identity: Mapping[str, str], steps: int) -> WrittenFile:
    """Write the model's weights, float32 in PyTorch's layout, with their perplexities and the run's settings.

    `steps`: how many they were trained for. Raises StorageError when the disk refuses.
    """
    metadata = {
        **identity,
        "gate_order": "ifgo (torch)" if state.model.config.cell == "lstm" else "rzn (torch)",
        **{name: repr(value) for name, value in _stored("validation_perplexity", state.best).items()},
        "steps": str(steps),
    }
    return save_tensors(path, state.model.torch_weights(), metadata)


def _stored(name: str, perplexities: Perplexities) -> dict[str, float]:
    """By the keys of a file's metadata."""
    return {name: perplexities.without_unknown, f"{name}_with_unknown": perplexities.with_unknown}


def _recurrent_names(state: PretrainState) -> list[str]:
    return [f"state.{name}" for name in state.model.config.states]


def _tensors(state: PretrainState) -> dict[str, Array]:
    carried = [tensor.detach().cpu().numpy() for tensor in state.recurrent]
    return state.model.torch_weights() | dict(zip(_recurrent_names(state), carried, strict=True))


def _check_identity(path: Path, stored: Mapping[str, str], expected: Mapping[str, str]) -> None:
    for name, value in expected.items():
        if stored.get(name) != value:
            raise ArtifactsError(
                f"{path}: made by a run with {name} {stored.get(name)}, this one has {value}; "
                "repeat that run's settings, or choose an empty folder to start over"
            )


def _check_best(path: Path, identity: Mapping[str, str]) -> None:
    try:
        with TensorFile(path) as file:
            _check_identity(path, file.metadata, identity)
    except WeightsError as error:
        raise ArtifactsError(
            f"{path}: the best weights of the run to resume were written there and cannot be read ({error}); "
            "put them back, or remove the state to start over"
        ) from error
