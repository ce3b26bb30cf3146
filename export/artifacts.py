"""Writes the artifacts folder: ONNX Runtime training artifacts, weights, vocabulary, manifest (ARCHITECTURE.md)."""

import hashlib
import platform
import tempfile
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from phonograd import __version__
from phonograd.device_runtime.base.errors import ArtifactsError, MissingExtraError
from phonograd.device_runtime.base.files import sha256_of_file, storage_errors, write_bytes
from phonograd.device_runtime.engine.predictor import write_prediction_weights
from phonograd.device_runtime.formats.frozen import frozen_metadata
from phonograd.device_runtime.formats.manifest import (
    EVAL_MODEL,
    FILES,
    PREDICTION,
    TEACHER_PREFIX,
    TRAINING_MODEL,
    TRAINING_MODEL_DISTILL,
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
from phonograd.device_runtime.formats.tensor_file import Array, check_finite, check_specs, save_tensors, spec_of
from phonograd.device_runtime.text.vocabulary import Vocabulary
from phonograd.export.placement import in_place

try:
    import onnx
    import onnxruntime

    from phonograd.export.gradient_graph import write_gradient_graph
    from phonograd.export.onnx_graph import Graph, Kind, evaluation_graph, training_graph
except ImportError as error:
    raise MissingExtraError.for_export("export needs onnx and onnxruntime-training-cpu", error) from error

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
    predict: Predict | None = None,
    distill: bool = False,
    inputs: Collection[Path] = (),
    check: Callable[[Artifacts], None] | None = None,
    teacher: LanguageModelConfig | None = None,
) -> Artifacts:
    """Write an artifacts folder at `folder`: into a temporary folder beside it, renamed when whole.

    weights: canonical tensors (LanguageModelConfig.tensor_specs), float32. `progress` hears the name of each stage.
    frozen: names of tensors that phones don't train.
    predict: "int8" also writes prediction weights. distill: also write the graph of transfer learning. overwrite:
    replace an artifacts folder, never one that holds something else or one of `inputs`, the files that the caller read.
    check: hears the folder before it is put in place; what it raises leaves none.
    teacher: the teacher's model, if it is another one: only the native engine runs such a folder, given the teacher's.
    Raises WeightsError (shapes, not finite), ArtifactsError (`folder` may not be replaced; vocabulary of another size;
    nothing to train), StorageError.
    """
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
    source = _Source(config, training, weights, frozen, vocabulary, teacher)
    heard = progress or (lambda _: None)
    with in_place(folder, overwrite, inputs) as partial, storage_errors(folder):
        _fill(partial, source, heard, predict, distill)
        if check is not None:
            heard("comparison with the model")
            check(open_artifacts(partial, verify=False))
    return open_artifacts(folder, verify=False)


@dataclass(frozen=True)
class _Source:
    config: LanguageModelConfig
    training: TrainingConfig
    weights: dict[str, Array]
    frozen: Collection[str]
    vocabulary: Vocabulary
    teacher: LanguageModelConfig | None

    def graph(self, kind: Kind = "full") -> Graph:
        return training_graph(self.config, self.training, self.weights, self.frozen, kind, self.teacher)


def _fill(
    folder: Path, source: _Source, progress: Callable[[str], None], predict: Predict | None, distill: bool
) -> None:
    progress("gradient graph")
    clip_norm = source.training.clip_norm
    graph = source.graph()
    teacher = [name for name in graph.frozen if name.startswith(TEACHER_PREFIX)]
    write_gradient_graph(folder, graph, clip_norm)
    names = list(FILES)
    progress("sampled gradient graph")
    _write_further_graph(folder / TRAINING_MODEL_SAMPLED, source.graph("sampled"), clip_norm)
    if distill:
        progress("distillation graph")
        path = folder / TRAINING_MODEL_DISTILL
        _write_further_graph(path, source.graph("distill"), clip_norm)
        if teacher:
            model = onnx.load(path)
            _add_parameter_inputs(model, teacher, source.weights)
            onnx.save(model, path)
        names.append(TRAINING_MODEL_DISTILL)
    progress("evaluation graph")
    _write_evaluation_model(folder, evaluation_graph(source.config, source.weights), teacher, source.weights)
    progress("weights")
    save_tensors(folder / WEIGHTS, source.weights, frozen_metadata(source.frozen, source.weights))
    if predict is not None:
        write_prediction_weights(folder / WEIGHTS, folder / PREDICTION)
        names.append(PREDICTION)
    write_bytes(folder / VOCABULARY, source.vocabulary.to_bytes(counted=True))
    progress("hashes")
    manifest = Manifest(
        model=source.config,
        training=source.training,
        states=tuple(graph.states),
        tensors=tuple(_tensor_entry(name, array) for name, array in source.weights.items()),
        files={name: FileEntry((folder / name).stat().st_size, sha256_of_file(folder / name)) for name in names},
        tools={
            "phonograd": __version__,  # by the modules: code that was copied has no metadata
            "onnx": onnx.__version__,
            "onnxruntime-training-cpu": onnxruntime.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
    )
    manifest.write(folder)


def _write_further_graph(path: Path, graph: Graph, clip_norm: float | None) -> None:
    """Write a further training graph; what else is generated with it is in the folder already."""
    with tempfile.TemporaryDirectory(dir=path.parent) as name:
        write_gradient_graph(Path(name), graph, clip_norm)
        (Path(name) / TRAINING_MODEL).rename(path)


def _write_evaluation_model(folder: Path, graph: Graph, teacher: list[str], weights: dict[str, Array]) -> None:
    """Replace the generated evaluation model (fixed T and B, no logits) by ours; parameters become inputs, as there."""
    model = graph.model("evaluation")
    _add_parameter_inputs(model, graph.trainable, weights)
    parameters = [init for init in model.graph.initializer if init.name in graph.trainable]
    for parameter in parameters:
        model.graph.initializer.remove(parameter)
    _add_parameter_inputs(model, teacher, weights)
    onnx.save(model, folder / EVAL_MODEL)


def _add_parameter_inputs(model: Any, names: list[str], weights: dict[str, Array]) -> None:
    """Declare parameters as inputs. ONNX Runtime feeds every parameter of the checkpoint to every graph, so an LwF
    teacher's are inputs of graphs that don't read them.
    """
    for name in names:
        shape = weights[name.removeprefix(TEACHER_PREFIX)].shape
        model.graph.input.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape))


def _tensor_entry(name: str, array: Array) -> TensorEntry:
    data = np.ascontiguousarray(array, "<f4")
    return TensorEntry(name, tuple(array.shape), "F32", hashlib.sha256(data.data.cast("B")).hexdigest())
