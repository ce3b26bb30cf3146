"""Dropout's masks: their share, their scale, and what they depend on."""

from pathlib import Path

import numpy as np
import pytest

from phonograd.device_runtime.engine.backend import BackendOptions
from phonograd.device_runtime.engine.graph import NativeGraph
from phonograd.device_runtime.formats.tensor_file import Array
from tests.native.graphs import SmallGraph, node

SHAPE = (200, 500)


def masks(folder: Path, probability: float, seed: int = 0, threads: int = 2, steps: int = 2) -> list[Array]:
    """Masks of two nodes at each step, [steps * 2, *SHAPE]; x, y and the gradient are checked to belong to them."""
    x = np.random.default_rng(1).normal(size=SHAPE).astype(np.float32)
    constants = {"p": np.array(probability, np.float32), "on": np.array(True)}
    nodes = [node("Dropout", "x p on", f"y{n} mask{n}") for n in "01"]
    nodes += [node("DropoutGrad", f"x mask{n} p on", f"dx{n}") for n in "01"]
    graph = SmallGraph(nodes, {"x": x}, [f"{name}{n}" for name in ("y", "mask", "dx") for n in "01"], constants)
    found = []
    options = BackendOptions(threads=threads, seed=seed)
    with NativeGraph(graph.save(folder / "model.onnx"), options=options, fuse=False) as opened:
        opened.set("x", x)
        for _ in range(steps):
            opened.run()
            for which in "01":
                mask = opened.get(f"mask{which}")
                expected = np.where(mask, x / np.float32(1 - np.float32(probability)), 0)
                for value in ("y", "dx"):
                    np.testing.assert_allclose(opened.get(f"{value}{which}"), expected, rtol=1e-6)
                found.append(mask)
    return found


def share_is(mask: Array, share: float) -> bool:
    return bool(abs(mask.mean() - share) <= 4 * np.sqrt(share * (1 - share) / mask.size))


@pytest.mark.parametrize("probability", [0.1, 0.5])
def test_the_kept_share_is_what_it_should_be(tmp_path: Path, probability: float) -> None:
    for mask in masks(tmp_path, probability):
        assert share_is(mask, 1 - probability)
        # Neighbours in a row and in a column are independent too.
        assert share_is(mask[:, 1:] & mask[:, :-1], (1 - probability) ** 2)
        assert share_is(mask[1:] & mask[:-1], (1 - probability) ** 2)


def test_nothing_is_dropped_with_probability_zero(tmp_path: Path) -> None:
    assert all(mask.all() for mask in masks(tmp_path, 0.0))


def test_steps_nodes_and_seeds_have_masks_of_their_own(tmp_path: Path) -> None:
    found = [mask for seed in (0, 1, 2**63) for mask in masks(tmp_path, 0.5, seed)]
    assert len(found) == 12
    for i, first in enumerate(found):
        for other in found[:i]:
            assert share_is(first == other, 0.5)


def test_a_mask_depends_on_the_seed_and_not_on_the_threads(tmp_path: Path) -> None:
    expected = masks(tmp_path, 0.5, seed=7, threads=1)
    for threads in (2, 5):
        for mask, same in zip(masks(tmp_path, 0.5, seed=7, threads=threads), expected, strict=True):
            np.testing.assert_array_equal(mask, same)
