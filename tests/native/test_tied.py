"""A tied embedding's gradient, rows and a product, whose sum the update stores only where it is smaller than they."""

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

V, E, R = 90, 21, 17
CLIP, RATE = 0.05, 0.5


def normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def update(folder: Path, inputs: dict[str, Array], fuse: bool) -> Array:
    """A table of zeros after the update of a tied embedding alone: its gradient is D^T X less the scattered `taken`."""
    table = np.zeros((V, E), np.float32)
    buffer = "table_grad.accumulation.buffer"
    graph = SmallGraph(
        [
            node("Shape", "table", "shape"),
            node("Neg", "taken", "rows"),  # only rows that a node made are left as they are
            node("GatherGrad", "shape ids rows", "scattered"),
            node("Gemm", "D X", "product", transA=1, beta=0.0),
            node("Sum", "scattered product", "gradient"),
            node("InPlaceAccumulatorV2", f"{buffer} gradient reset", "marked"),
        ],
        {**inputs, "table": table, buffer: table, "reset": np.array([True])},
        [],
    )
    save_tensors(folder / "weights.safetensors", {"table": table})
    clipping = exported(LanguageModelConfig("lstm", 40, 8, 8, 1), TrainingConfig(3, 5, clip_norm=CLIP)).folder
    files = (graph.save(folder / "model.onnx"), clipping / "optimizer_model.onnx", folder / "weights.safetensors")
    with NativeGraph(*files, BackendOptions(threads=2), fuse) as opened:
        for name, values in inputs.items():
            opened.set(name, values)
        opened.run(RATE)
        return opened.get("table")


@pytest.mark.parametrize("N", [13, 31])  # tokens: the sum is larger than the factors, and smaller
@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("share", [-1.0, 0.0, 0.5, 0.9])
def test_the_norm_is_that_of_the_sum(tmp_path: Path, share: float, fuse: bool, N: int) -> None:
    """The rows take back a `share` of what the product gives them; most of the product is in these rows."""
    ids = np.random.default_rng(1).integers(0, V, R)
    ids[5] = ids[11] = ids[2]
    D, X = normal(2, N, V) * np.float32(1e-3), normal(3, N, E)
    D[:, np.unique(ids)] *= 1e4
    product = D.T.astype(np.float64) @ X
    rows = (-share * product[ids] / np.bincount(ids)[ids][:, None]).astype(np.float32)
    gradient = product.copy()
    np.add.at(gradient, ids, rows.astype(np.float64))
    found = update(tmp_path, {"ids": ids, "taken": -rows, "D": D, "X": X}, fuse)
    expected = -RATE * gradient * min(1.0, CLIP / (float(np.linalg.norm(gradient)) + 1e-6))
    assert np.linalg.norm(found - expected) <= 1e-5 * np.linalg.norm(expected)
