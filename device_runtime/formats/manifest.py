"""The artifacts folder: manifest.json and the checks that hold its files to it."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from msgspec import Meta

from phonograd.device_runtime.base.documents import (
    Count,
    FieldError,
    Positive,
    Record,
    Sha256,
    about,
    document_of,
    parse,
    read,
)
from phonograd.device_runtime.base.errors import ArtifactsError
from phonograd.device_runtime.base.files import read_bytes, sha256_of_file, write_bytes
from phonograd.device_runtime.base.settings import Positive as Rate
from phonograd.device_runtime.base.settings import Settings, Share
from phonograd.device_runtime.formats.model_config import LanguageModelConfig

SCHEMA_VERSION: Final = 3
MANIFEST = "manifest.json"
TRAINING_MODEL = "training_model.onnx"
TRAINING_MODEL_SAMPLED = "training_model_sampled.onnx"
TRAINING_MODEL_DISTILL = "training_model_distill.onnx"
EVAL_MODEL = "eval_model.onnx"
OPTIMIZER_MODEL = "optimizer_model.onnx"
CHECKPOINT = "checkpoint"
WEIGHTS = "weights.safetensors"
VOCABULARY = "vocab.txt"
PREDICTION = "prediction.safetensors"
GRAPHS = (TRAINING_MODEL, TRAINING_MODEL_SAMPLED, TRAINING_MODEL_DISTILL, EVAL_MODEL, OPTIMIZER_MODEL)
FILES = (
    *(TRAINING_MODEL, TRAINING_MODEL_SAMPLED, EVAL_MODEL, OPTIMIZER_MODEL),
    *(CHECKPOINT, WEIGHTS, VOCABULARY),
)
OPTIONAL_FILES = (PREDICTION, TRAINING_MODEL_DISTILL)
# The frozen copy of the model in an LwF graph: the same tensors under this prefix.
TEACHER_PREFIX = "teacher."
# The distillation graph's input in place of targets: the teachers' mean probabilities, [T·B, V].
TEACHER_PROBS = "teacher_probs"

Loss = Literal["ce", "lwf"]
LossReduction = Literal["sum_over_time", "mean"]


Dropout = Annotated[float, Meta(ge=0, lt=1), about("Dropout.")]
ClipNorm = Annotated[
    Rate | None, Meta(extra={"none": "none"}), about("Bound of the L2 norm of the whole gradient.")
]  # None: no clipping


class TrainingConfig(Settings, frozen=True):
    """Settings of the training graph (paper P's on-device epoch by default).

    `loss_reduction` sum_over_time: the sum over the T steps averaged over the minibatch, Zaremba's reading, under which
    learning rate 0.75 and clip norm 5 hold together; mean: the mean over the T·B tokens.
    """

    minibatch: Annotated[Positive, about("Sequences side by side.")] = 10
    bptt: Annotated[Positive, about("Time steps a window.")] = 20
    learning_rate: Annotated[Rate, about("Learning rate.")] = 0.75
    clip_norm: ClipNorm = 5.0
    loss: Annotated[Loss, about("lwf: paper P, eqs. 1-2.")] = "ce"
    loss_reduction: Annotated[
        LossReduction, about("Learning rate 0.75 and clip norm 5 are meant for sum_over_time.")
    ] = "sum_over_time"
    user_share: Annotated[Share, about("λ of the loss lwf.")] = 0.5
    dropout: Dropout = 0.0


class StateTensor(Record, frozen=True):
    """A recurrent state carried from window to window: the graph's input and output of it, shape [1, B, H] float32."""

    input: str
    output: str
    shape: Annotated[tuple[Positive, ...], Meta(min_length=3, max_length=3)]


class FileEntry(Record, frozen=True):
    """Size and hex SHA-256 of one file of the folder."""

    bytes: Count
    sha256: Sha256


class TensorEntry(Record, frozen=True):
    """One trainable tensor: name, shape, dtype and hex SHA-256 of its little-endian bytes."""

    name: str
    shape: tuple[Positive, ...]
    dtype: str
    sha256: Sha256


class TextRules(Record, frozen=True):
    """The rules by which text becomes tokens: their version, and Unicode's. FORMAT.md, "Text"."""

    rules: Literal[1] = 1
    unicode: Literal["15.0.0"] = "15.0.0"


class Manifest(Record, frozen=True):
    """The contents of manifest.json."""

    model: LanguageModelConfig
    training: TrainingConfig
    states: tuple[StateTensor, ...]
    tensors: tuple[TensorEntry, ...]
    files: dict[str, FileEntry]
    tools: dict[str, str]
    text: TextRules = TextRules()
    schema_version: Literal[3] = SCHEMA_VERSION

    def write(self, folder: Path) -> None:
        """Write manifest.json into `folder`, last of all files: its presence says that the folder is whole."""
        write_bytes(folder / MANIFEST, json.dumps(document_of(self), indent=2).encode() + b"\n")


@dataclass(frozen=True)
class Artifacts:
    """An artifacts folder whose manifest was read and, unless asked otherwise, whose files were checked."""

    folder: Path
    manifest: Manifest

    def path(self, name: str) -> Path:
        """The path of one of FILES or OPTIONAL_FILES."""
        return self.folder / name

    @property
    def weights_sha256(self) -> str:
        """The model's identity: the hash of weights.safetensors."""
        return self.manifest.files[WEIGHTS].sha256

    def require_distill(self) -> None:
        """Raise ArtifactsError for a folder without the graph that transfer learning trains."""
        if TRAINING_MODEL_DISTILL not in self.manifest.files:
            raise ArtifactsError(
                f"{self.folder}: {TRAINING_MODEL_DISTILL} expected for transfer learning, found a folder without it; "
                "export the same model again with `--distill`"
            )


def open_artifacts(folder: str | os.PathLike[str], verify: bool = True) -> Artifacts:
    """Read manifest.json and, with `verify`, hash every file it names.

    Raises ArtifactsError: no folder, no manifest (half written), another schema version, a missing or altered file.
    """
    folder = Path(folder)
    path = folder / MANIFEST
    try:
        manifest = _parse(read_bytes(path))
    except FileNotFoundError as error:
        what = "an export that did not finish, or another folder" if folder.is_dir() else "no such folder"
        raise ArtifactsError(f"{path}: not found ({what}); write one with: phonograd export") from error
    except NotADirectoryError as error:
        raise ArtifactsError(
            f"{folder}: an artifacts folder expected, found a file; give the folder that phonograd export wrote"
        ) from error
    except OSError as error:
        raise ArtifactsError(f"{path}: cannot be read: {error.strerror}; check the folder's permissions") from error
    except (FieldError, ArtifactsError) as error:
        raise ArtifactsError(f"{path}: {error}; export again with this version") from error
    for name, entry in manifest.files.items():
        _check_file(folder / name, entry, verify)
    return Artifacts(folder, manifest)


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


def _parse(text: bytes) -> Manifest:
    document = parse(text)
    version = document.get("schema_version") if isinstance(document, dict) else None
    if type(version) is not int or version != SCHEMA_VERSION:
        raise FieldError(f"schema_version {SCHEMA_VERSION} expected, found {version!r}")
    manifest = read(Manifest, document)
    for part, kind in (("model", LanguageModelConfig), ("training", TrainingConfig)):
        for name in kind.__struct_fields__:
            if name not in document[part]:  # a default is for who makes one, not for a file
                raise FieldError(f"{part}.{name}: missing")
    if odd := set(manifest.files) - set(OPTIONAL_FILES) ^ set(FILES):
        raise FieldError(f"files: missing or unknown: {', '.join(sorted(odd))}")
    return manifest
