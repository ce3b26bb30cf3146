"""Writes the artifacts folder: ONNX Runtime training artifacts, weights, vocabulary, manifest (ARCHITECTURE.md)."""

import hashlib
import platform
import secrets
import shutil
import tempfile
from collections.abc import Callable, Collection, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import numpy as np

from phonograd.device_runtime.base.errors import ArtifactsError, MissingExtraError
from phonograd.device_runtime.base.files import sha256_of_file, storage_errors, sync_folder, write_bytes
from phonograd.device_runtime.formats.frozen import frozen_metadata
from phonograd.device_runtime.formats.manifest import (
    COUNTS,
    EVAL_MODEL,
    FILES,
    PREDICTION,
    TEACHER_PREFIX,
    TRAINING_MODEL,
    TRAINING_MODEL_SAMPLED,
    VOCABULARY,
    WEIGHTS,
    Artifacts,
    FileEntry,
    Manifest,
    TensorEntry,
    TrainingConfig,
    open_artifacts,
)
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.formats.prediction_weights import write_prediction_weights
from phonograd.device_runtime.formats.tensor_file import Array, check_finite, check_specs, save_tensors, spec_of
from phonograd.device_runtime.text.counts import counts_bytes, zipf_counts
from phonograd.device_runtime.text.vocabulary import Ids, Vocabulary

try:
    import onnx

    from phonograd.export.gradient_graph import write_gradient_graph
    from phonograd.export.onnx_graph import Graph, evaluation_graph, training_graph
except ImportError as error:
    raise MissingExtraError(
        f"export needs onnx and onnxruntime-training-cpu ({error}); install them with: pip install 'phonograd[export]'"
    ) from error

OLD_SUFFIX = "replaced"
# The kinds of prediction weights.
Predict = Literal["int8"]


def export_artifacts(
    folder: Path,
    config: LanguageModelConfig,
    training: TrainingConfig,
    weights: dict[str, Array],
    vocabulary: Vocabulary,
    progress: Callable[[str], None] | None = None,
    overwrite: bool = False,
    frozen: Collection[str] = (),
    counts: Sequence[int] | Ids | None = None,
    predict: Predict | None = None,
) -> Artifacts:
    """Write an artifacts folder at `folder`: into a temporary folder beside it, renamed when whole.

    weights: canonical tensors (LanguageModelConfig.tensor_specs), float32. `progress` hears the name of each stage.
    frozen: names of tensors that phones don't train. counts: of each word in general text; None: by Zipf's law.
    predict: "int8" also writes prediction weights. Raises
    WeightsError (shapes, not finite), ArtifactsError (folder exists; vocabulary of another size; nothing to train),
    StorageError.
    """
    if folder.exists() and not overwrite:
        raise ArtifactsError(f"{folder}: already there; choose another `out` or give `overwrite`")
    if len(vocabulary) != config.vocabulary:
        raise ArtifactsError(
            f"{vocabulary.source}: {config.vocabulary} words expected by the model, found {len(vocabulary)}"
        )
    check_specs("weights", {name: spec_of(name, array) for name, array in weights.items()}, config.tensor_specs())
    for name, array in weights.items():
        check_finite("weights", name, array)
    if odd := sorted(set(frozen) - weights.keys()):
        raise ArtifactsError(f"frozen tensors: names among {', '.join(weights)} expected, found {odd[0]!r}")
    if len(set(frozen)) == len(weights):
        raise ArtifactsError("frozen tensors: all of the model's; leave one out, so that there is something to train")
    partial = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.partial")
    with storage_errors(folder):
        folder.absolute().parent.mkdir(parents=True, exist_ok=True)
        partial.mkdir()
    try:
        with storage_errors(folder):
            counted = counts_bytes(vocabulary, zipf_counts(len(vocabulary)) if counts is None else counts)
            _fill(
                partial, config, training, weights, vocabulary, counted, progress or (lambda _: None), frozen, predict
            )
            _put_in_place(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return open_artifacts(folder, verify=False)


def _put_in_place(partial: Path, folder: Path) -> None:
    replaced = folder.with_name(f"{partial.name}.{OLD_SUFFIX}")
    if folder.exists():
        folder.rename(replaced)
    try:
        partial.rename(folder)
    except OSError:
        if replaced.exists():
            replaced.rename(folder)
        raise
    sync_folder(folder.absolute().parent)
    shutil.rmtree(replaced, ignore_errors=True)


def _fill(
    folder: Path,
    config: LanguageModelConfig,
    training: TrainingConfig,
    weights: dict[str, Array],
    vocabulary: Vocabulary,
    counts: bytes,
    progress: Callable[[str], None],
    frozen: Collection[str],
    predict: Predict | None,
) -> None:
    progress("gradient graph")
    graph = training_graph(config, training, weights, frozen)
    write_gradient_graph(folder, graph, training.clip_norm)
    progress("sampled gradient graph")
    with tempfile.TemporaryDirectory(dir=folder) as name:  # its other files are those that are there already
        write_gradient_graph(
            Path(name), training_graph(config, training, weights, frozen, sampled=True), training.clip_norm
        )
        (Path(name) / TRAINING_MODEL).rename(folder / TRAINING_MODEL_SAMPLED)
    progress("evaluation graph")
    teacher = [name for name in graph.frozen if name.startswith(TEACHER_PREFIX)]
    _write_evaluation_model(folder, evaluation_graph(config, weights), teacher)
    progress("weights")
    written = save_tensors(folder / WEIGHTS, weights, frozen_metadata(frozen, weights))
    if predict is not None:
        write_prediction_weights(folder / PREDICTION, weights, written.sha256)
    write_bytes(folder / VOCABULARY, vocabulary.to_bytes())
    write_bytes(folder / COUNTS, counts)
    progress("hashes")
    names = (*FILES, PREDICTION) if predict is not None else FILES
    manifest = Manifest(
        model=config,
        training=training,
        states=tuple(graph.states),
        tensors=tuple(_tensor_entry(name, array) for name, array in weights.items()),
        files={name: FileEntry((folder / name).stat().st_size, sha256_of_file(folder / name)) for name in names},
        tools={
            **{package: version(package) for package in ("phonograd", "onnx", "onnxruntime-training-cpu", "numpy")},
            "python": platform.python_version(),
        },
    )
    manifest.write(folder)


def _write_evaluation_model(folder: Path, graph: Graph, teacher: list[str]) -> None:
    """Replace the generated evaluation model (fixed T and B, no logits) by ours; parameters become inputs, as there.

    ONNX Runtime feeds every parameter of the checkpoint to it, so an LwF teacher's stand as inputs that nothing reads.
    """
    model = graph.model("evaluation")
    parameters = {init.name: init for init in model.graph.initializer if init.name in graph.trainable}
    for name in [*graph.trainable, *teacher]:
        like = parameters[name.removeprefix(TEACHER_PREFIX)]
        model.graph.input.append(onnx.helper.make_tensor_value_info(name, like.data_type, list(like.dims)))
    for parameter in parameters.values():
        model.graph.initializer.remove(parameter)
    onnx.save(model, folder / EVAL_MODEL)


def _tensor_entry(name: str, array: Array) -> TensorEntry:
    data = np.ascontiguousarray(array, "<f4")
    return TensorEntry(name, tuple(array.shape), "F32", hashlib.sha256(data.data.cast("B")).hexdigest())
