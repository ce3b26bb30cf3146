"""The native engine's dropout masks: a function of seed, step, node and place (native/src/operators/dropout.cpp)."""

from pathlib import Path

import numpy as np

from phonograd.device_runtime.base.random_words import SplitMix64, random_words
from phonograd.device_runtime.formats.tensor_file import Floats

_STEP = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def dropout_nodes(graph: Path) -> list[int]:
    """The places of the Dropout nodes among the nodes of a training graph, in order."""
    import onnx  # takes a while, and few models have dropout

    return [at for at, node in enumerate(onnx.load(graph).graph.node) if node.op_type == "Dropout"]


def dropout_mask(seed: int, step: int, node: int, probability: float, count: int) -> Floats:
    """What each of `count` elements is multiplied by, 0 or 1 / (1 - probability), float32. step: from 0."""
    ratio = np.float32(probability)
    of_step = _mixed(step + (node << 40) + 1)
    key = _mixed(seed + _STEP * of_step)
    kept = random_words((key - _STEP) & _MASK, 0, count) >> np.uint64(32) >= np.uint64(int(float(ratio) * 2.0**32))
    return np.where(kept, np.float32(1) / (np.float32(1) - ratio), np.float32(0))


def _mixed(state: int) -> int:
    """The output of SplitMix64's state."""
    return SplitMix64(state - _STEP).next()
