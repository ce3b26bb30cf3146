"""Gradient graphs and optimizers, by ONNX Runtime from our forward graphs."""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

import onnx
from onnxruntime.training import artifacts as ort_artifacts
from onnxruntime.training import onnxblock

from phonograd.device_runtime.formats.manifest import TEACHER_PREFIX, TRAINING_MODEL
from phonograd.export.onnx_graph import LOSS, Graph


class _LossIsInTheGraph(onnxblock.Block):  # type: ignore[misc]  # onnxruntime has no types
    """Our forward graph ends in the loss already: pass its name on."""

    def build(self, loss: str) -> str:
        return loss


@contextlib.contextmanager
def _quiet_stderr() -> Iterator[None]:
    """Drop what native code writes to stderr: the graph optimiser logs 40 lines at INFO whatever level is set.

    Its errors come as exceptions, so nothing is lost.
    """
    saved = os.dup(2)
    try:
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


@contextlib.contextmanager
def _native_errors() -> Iterator[None]:
    """ONNX Runtime reports a full disk as a RuntimeError that ends in the errno: make it the OSError it is."""
    try:
        yield
    except RuntimeError as error:
        refused = re.search(r"errno:(\d+)", str(error))
        if refused is None:
            raise
        number = int(refused[1])
        raise OSError(number, os.strerror(number)) from error


def write_gradient_graph(folder: Path, graph: Graph, clip_norm: float | None) -> None:
    """Write what ONNX Runtime derives from a forward graph whose output LOSS is its loss: training_model.onnx,
    optimizer_model.onnx (SGD; clip_norm: of all gradients together, None: no clipping) and its checkpoint.

    Raises OSError.
    """
    clip = None if clip_norm is None else onnxblock.optim.ClipGradNorm(clip_norm)
    model = graph.model("training")
    with _quiet_stderr(), _native_errors():
        ort_artifacts.generate_artifacts(
            model,
            requires_grad=graph.trainable,
            frozen_params=graph.frozen,
            loss=_LossIsInTheGraph(),
            loss_input_names=[LOSS],
            additional_output_names=[state.output for state in graph.states],
            optimizer=onnxblock.optim.SGD(clip_grad=clip),
            artifact_directory=folder,
        )
    if any(not name.startswith(TEACHER_PREFIX) for name in graph.frozen):
        _complete_recurrent_gradients(folder / TRAINING_MODEL)


def _complete_recurrent_gradients(path: Path) -> None:
    """Give every recurrent gradient node all of its weights' outputs: ONNX Runtime 1.19 writes to those left out.

    What is then read by nobody is not computed by the native engine.
    """
    model = onnx.load(path)
    for node in model.graph.node:
        if node.op_type in ("LSTMGrad", "GRUGrad"):
            node.output.extend([""] * (4 - len(node.output)))
            for index in range(1, 4):
                node.output[index] = node.output[index] or f"{node.name}.unused_{index}"
    onnx.save(model, path)
