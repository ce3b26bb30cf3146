"""The student: trained on the teachers' mean predictions through the artifacts' distillation graph."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from phonograd.device_runtime.base.errors import TrainingError
from phonograd.device_runtime.engine.backend import BackendOptions, Window
from phonograd.device_runtime.engine.graph import NativeGraph
from phonograd.device_runtime.formats.manifest import (
    OPTIMIZER_MODEL,
    TEACHER_PREFIX,
    TEACHER_PROBS,
    TRAINING_MODEL_DISTILL,
    Artifacts,
)
from phonograd.device_runtime.formats.tensor_file import TensorFile, WrittenFile, check_finite, write_tensor_file
from phonograd.device_runtime.training.report import DIVERGENCE
from phonograd.server_agg.transfer.teachers import Predictions


def train_student(
    weights: Path,
    artifacts: Artifacts,
    windows: Sequence[Window],
    targets: Predictions,
    learning_rate: float,
    options: BackendOptions,
    out: Path,
    metadata: Mapping[str, str],
    window_done: Callable[[], None],
) -> None:
    """Train the model `weights` on consecutive windows, from zero states, and write it to `out` with `metadata`.

    Raises TrainingError if the loss is not finite or training diverges, StorageError.
    """
    states = [state for state in artifacts.manifest.states if not state.input.startswith(TEACHER_PREFIX)]
    graphs = artifacts.path(TRAINING_MODEL_DISTILL), artifacts.path(OPTIMIZER_MODEL)
    with NativeGraph(*graphs, weights, options) as graph:
        for number, window in enumerate(windows):
            graph.set("tokens", window.tokens)
            graph.set(TEACHER_PROBS, targets.read(number))
            graph.run(learning_rate)
            _require_sound(float(graph.get("loss")), window, artifacts, learning_rate)
            for state in states:
                graph.set(state.input, graph.get(state.output))
            window_done()
        with TensorFile(weights) as file:
            specs = list(file.specs.values())
        write_tensor_file(out, specs, (graph.get(spec.name) for spec in specs), metadata)


def _require_sound(loss: float, window: Window, artifacts: Artifacts, learning_rate: float) -> None:
    training = artifacts.manifest.training
    if training.loss_reduction == "sum_over_time":
        loss *= training.minibatch / window.predictions
    most = DIVERGENCE * math.log(artifacts.manifest.model.vocabulary)
    if not loss <= most:  # NaN too
        raise TrainingError(
            f"transfer learning: the loss is {loss:.6g} nats a token, expected {most:.6g} at most (ten times a uniform "
            f"guess); training diverged: lower `transfer_lr` ({learning_rate})"
        )


def copy_model(source: Path, out: Path, metadata: Mapping[str, str]) -> WrittenFile:
    """Write a model's tensors with other metadata. Raises WeightsError for one that is not finite, StorageError."""
    with TensorFile(source) as file:
        for name in file.specs:
            check_finite("transfer learning", name, file.read(name))
        return write_tensor_file(out, file.specs.values(), (file.read(name) for name in file.specs), metadata)
