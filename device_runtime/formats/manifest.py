"""The artifacts folder: manifest.json and the checks that hold its files to it."""

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from phonograd.device_runtime.base.errors import ArtifactsError
from phonograd.device_runtime.base.files import sha256_of_file, write_bytes
from phonograd.device_runtime.formats.model_config import LanguageModelConfig

SCHEMA_VERSION = 2
MANIFEST = "manifest.json"
TRAINING_MODEL = "training_model.onnx"
TRAINING_MODEL_SAMPLED = "training_model_sampled.onnx"
EVAL_MODEL = "eval_model.onnx"
OPTIMIZER_MODEL = "optimizer_model.onnx"
CHECKPOINT = "checkpoint"
WEIGHTS = "weights.safetensors"
VOCABULARY = "vocab.txt"
COUNTS = "counts.txt"
GRAPHS = (TRAINING_MODEL, TRAINING_MODEL_SAMPLED, EVAL_MODEL, OPTIMIZER_MODEL)
FILES_1 = (TRAINING_MODEL, EVAL_MODEL, OPTIMIZER_MODEL, CHECKPOINT, WEIGHTS, VOCABULARY)
FILES = (*FILES_1, TRAINING_MODEL_SAMPLED, COUNTS)
# By schema version: folders of version 1 have nothing to train with an output sample.
FILES_OF = {1: FILES_1, SCHEMA_VERSION: FILES}
# The frozen copy of the model in an LwF graph: the same tensors under this prefix.
TEACHER_PREFIX = "teacher."

Loss = Literal["ce", "lwf"]
LossReduction = Literal["sum_over_time", "mean"]


@dataclass(frozen=True)
class TrainingConfig:
    """What the training graph computes (paper P's on-device epoch by default).

    `loss_reduction` sum_over_time: the sum over the T steps averaged over the minibatch, Zaremba's reading, under which
    learning rate 0.75 and clip norm 5 hold together; mean: the mean over the T·B tokens. `user_share` is the λ of the
    LwF loss (P, eqs. 1-2) and unused with ce. `clip_norm` bounds the L2 norm of the whole gradient; None: no clipping.
    """

    minibatch: int = 10
    bptt: int = 20
    learning_rate: float = 0.75
    clip_norm: float | None = 5.0
    loss: Loss = "ce"
    loss_reduction: LossReduction = "sum_over_time"
    user_share: float = 0.5
    dropout: float = 0.0

    def __post_init__(self) -> None:
        checks = (
            (self.minibatch >= 1, f"minibatch is {self.minibatch}, expected at least 1"),
            (self.bptt >= 1, f"bptt is {self.bptt}, expected at least 1"),
            (self.learning_rate > 0, f"learning_rate is {self.learning_rate}, expected more than 0"),
            (self.clip_norm is None or self.clip_norm > 0, f"clip_norm is {self.clip_norm}, expected more than 0"),
            (self.loss in get_args(Loss), f"loss is {self.loss!r}, expected one of {', '.join(get_args(Loss))}"),
            (
                self.loss_reduction in get_args(LossReduction),
                f"loss_reduction is {self.loss_reduction!r}, expected one of {', '.join(get_args(LossReduction))}",
            ),
            (0 < self.user_share <= 1, f"user_share is {self.user_share}, expected a number in (0, 1]"),
            (0 <= self.dropout < 1, f"dropout is {self.dropout}, expected a number in [0, 1)"),
        )
        for good, message in checks:
            if not good:
                raise ArtifactsError(f"training: {message}")


@dataclass(frozen=True)
class StateTensor:
    """A recurrent state carried from window to window: the graph's input and output of it, shape [1, B, H] float32."""

    input: str
    output: str
    shape: tuple[int, int, int]


@dataclass(frozen=True)
class FileEntry:
    """Size and hex SHA-256 of one file of the folder."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class TensorEntry:
    """One trainable tensor: name, shape, dtype and hex SHA-256 of its little-endian bytes."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """All of manifest.json."""

    model: LanguageModelConfig
    training: TrainingConfig
    states: tuple[StateTensor, ...]
    tensors: tuple[TensorEntry, ...]
    files: Mapping[str, FileEntry]
    tools: Mapping[str, str]
    schema_version: int = SCHEMA_VERSION

    def write(self, folder: Path) -> None:
        """Write manifest.json into `folder`, last of all files: its presence says that the folder is whole."""
        write_bytes(folder / MANIFEST, json.dumps(dataclasses.asdict(self), indent=2).encode() + b"\n")


@dataclass(frozen=True)
class Artifacts:
    """An artifacts folder whose manifest was read and, unless asked otherwise, whose files were checked."""

    folder: Path
    manifest: Manifest

    def path(self, name: str) -> Path:
        """The path of one of FILES."""
        return self.folder / name

    @property
    def weights_sha256(self) -> str:
        """The model's identity: the hash of weights.safetensors."""
        return self.manifest.files[WEIGHTS].sha256

    def require_sampled(self) -> None:
        """Raise ArtifactsError for a folder of schema version 1, which has no graph for an output sample."""
        if TRAINING_MODEL_SAMPLED not in self.manifest.files:
            raise ArtifactsError(
                f"{self.folder}: {TRAINING_MODEL_SAMPLED} and {COUNTS} expected for an output sample, found a folder "
                "without them; export again with this version"
            )


def open_artifacts(folder: str | os.PathLike[str], verify: bool = True) -> Artifacts:
    """Read manifest.json and, with `verify`, hash every file it names.

    Raises ArtifactsError: no folder, no manifest (half written), another schema version, a missing or altered file.
    """
    folder = Path(folder)
    path = folder / MANIFEST
    try:
        document = json.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        what = "an export that did not finish, or another folder" if folder.is_dir() else "no such folder"
        raise ArtifactsError(f"{path}: not found ({what}); write one with: phonograd export") from error
    except NotADirectoryError as error:
        raise ArtifactsError(
            f"{folder}: an artifacts folder expected, found a file; give the folder that phonograd export wrote"
        ) from error
    except OSError as error:
        raise ArtifactsError(f"{path}: cannot be read: {error.strerror}; check the folder's permissions") from error
    except ValueError as error:
        raise ArtifactsError(f"{path}: cannot be read as JSON: {error}; export the folder again") from error
    try:
        artifacts = Artifacts(folder, _parse(path, document))
    except (TypeError, AttributeError) as error:
        raise ArtifactsError(f"{path}: a value is of the wrong type ({error}); export again") from error
    for name, entry in artifacts.manifest.files.items():
        _check_file(folder / name, entry, verify)
    return artifacts


def _check_file(path: Path, entry: FileEntry, verify: bool) -> None:
    if not path.is_file():
        raise ArtifactsError(f"{path}: named in {MANIFEST}, not found; export the folder again")
    found = path.stat().st_size
    if found != entry.bytes:
        raise ArtifactsError(f"{path}: {entry.bytes} bytes expected, found {found}; export or copy the folder again")
    if verify and (digest := sha256_of_file(path)) != entry.sha256:
        raise ArtifactsError(
            f"{path}: SHA-256 {entry.sha256[:12]}… expected, found {digest[:12]}…; the file was altered"
        )


Settings = TypeVar("Settings")


def _fields(path: Path, what: str, kind: type[Settings], document: object) -> Settings:
    if not isinstance(document, dict):
        raise ArtifactsError(f"{path}: {what} is {type(document).__name__}, expected an object")
    names = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]  # every kind is a dataclass
    if set(document) != names:
        odd = ", ".join(sorted(set(document) ^ names))
        raise ArtifactsError(f"{path}: {what}: fields missing or unknown: {odd}; export again with this version")
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in document.items()}
    return kind(**values)


def _parse(path: Path, document: Any) -> Manifest:
    version = document.get("schema_version") if isinstance(document, dict) else None
    if version not in FILES_OF:
        expected = " or ".join(map(str, FILES_OF))
        raise ArtifactsError(
            f"{path}: schema_version {expected} expected, found {version}; export again with this version"
        )
    top = _fields(path, "manifest", Manifest, document)
    if odd := set(top.files) ^ set(FILES_OF[version]):
        raise ArtifactsError(
            f"{path}: files: missing or unknown in schema_version {version}: {', '.join(sorted(odd))}; export again"
        )
    return Manifest(
        model=_fields(path, "model", LanguageModelConfig, top.model),
        training=_fields(path, "training", TrainingConfig, top.training),
        states=tuple(_fields(path, "states", StateTensor, entry) for entry in top.states),
        tensors=tuple(_fields(path, "tensors", TensorEntry, entry) for entry in top.tensors),
        files={name: _fields(path, f"files.{name}", FileEntry, entry) for name, entry in top.files.items()},
        tools=dict(top.tools),
        schema_version=version,
    )
