"""A tied embedding's gradient, rows and a product, which the update adds without storing their sum."""

from pathlib import Path

import numpy as np
import pytest

from phonograd.device_runtime.engine.backend import BackendOptions
from phonograd.device_runtime.engine.graph import NativeGraph
from phonograd.device_runtime.formats.manifest import TrainingConfig
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import Array, save_tensors
from tests.native.graphs import SmallGraph, node
from tests.support.artifacts import exported

V, E, N, R = 90, 21, 13, 17
CLIP, RATE = 0.05, 0.5


def normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def opened(folder: Path, inputs: dict[str, Array], table: Array, threads: int, fuse: bool) -> NativeGraph:
    """A graph that is a tied embedding's update alone: its gradient is the scattered `rows` plus D^T X."""
    graph = SmallGraph(
        [
            node("Shape", "table", "shape"),
            node("GatherGrad", "shape ids rows", "scattered"),
            node("Gemm", "D X", "product", transA=1, beta=0.0),
            node("Sum", "scattered product", "gradient"),
            node("InPlaceAccumulatorV2", "table_grad.accumulation.buffer gradient reset", "marked"),
        ],
        {
            **inputs,
            "table": table,
            "table_grad.accumulation.buffer": table,
            "reset": np.array([True]),
        },
        [],
    )
    save_tensors(folder / "weights.safetensors", {"table": table})
    clipping = exported(LanguageModelConfig("lstm", 40, 8, 8, 1), TrainingConfig(3, 5, clip_norm=CLIP)).folder
    model, weights = graph.save(folder / "model.onnx"), folder / "weights.safetensors"
    options = BackendOptions(threads=threads)
    return NativeGraph(model, clipping / "optimizer_model.onnx", weights, options, fuse)


def updated(folder: Path, inputs: dict[str, Array], table: Array, threads: int = 2, fuse: bool = True) -> Array:
    with opened(folder, inputs, table, threads, fuse) as graph:
        for name, values in inputs.items():
            graph.set(name, values)
        graph.run(RATE)
        return graph.get("table")


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("share", [-1.0, 0.0, 0.5, 0.9])
def test_the_norm_is_that_of_the_sum(tmp_path: Path, share: float, fuse: bool) -> None:
    """The rows take back a `share` of what the product gives them; most of the product is in these rows."""
    ids = np.random.default_rng(1).integers(0, V, R)
    ids[5] = ids[11] = ids[2]
    D, X = normal(2, N, V) * np.float32(1e-3), normal(3, N, E)
    D[:, np.unique(ids)] *= 1e4
    product = D.T.astype(np.float64) @ X
    rows = (-share * product[ids] / np.bincount(ids)[ids][:, None]).astype(np.float32)
    gradient = product.copy()
    np.add.at(gradient, ids, rows.astype(np.float64))
    table = np.zeros((V, E), np.float32)
    found = updated(tmp_path, {"ids": ids, "rows": rows, "D": D, "X": X}, table, fuse=fuse)
    expected = -RATE * gradient * min(1.0, CLIP / (float(np.linalg.norm(gradient)) + 1e-6))
    assert np.linalg.norm(found - expected) <= 1e-5 * np.linalg.norm(expected)


def test_the_update_is_the_same_bits_on_any_number_of_threads(tmp_path: Path) -> None:
    ids = np.random.default_rng(1).integers(0, V, R)
    inputs = {"ids": ids, "rows": normal(4, R, E), "D": normal(2, N, V), "X": normal(3, N, E)}
    table = normal(5, V, E)
    expected = updated(tmp_path, inputs, table, threads=1)
    for threads in (2, 3, 5, 8):
        assert updated(tmp_path, inputs, table, threads).tobytes() == expected.tobytes()
