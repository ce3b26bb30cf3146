"""One pass over an update that changes nothing: is it finite, how far does it reach, how long is each tensor's delta.

A delta is the trained weights less the base's. Sums run over blocks that fit a core's cache and are added up exactly
(math.fsum), so that neither threads nor their timing change a bit.
"""

import math
from collections.abc import Iterator
from typing import Literal

import numpy as np

from phonograd.device_runtime.base.errors import WeightsError
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, tile_ranges
from phonograd.server_agg.aggregation.parallel import run_in_threads
from phonograd.server_agg.aggregation.tile_source import (
    BLOCK_ELEMENTS,
    NamedTile,
    TileSource,
    named_tiles,
    threads_for,
)

# An update further than this from its base is not a trained model: 2**30, where a fold's accumulators end too.
MAX_ABS_LIMIT = 2.0**30

Norm = Literal["1", "2", "inf"]


def max_abs_delta(update: TileSource, base: TensorFile) -> float:
    """The largest |delta| of an update, to float32's precision. Raises WeightsError for one of 2**30 or not finite."""

    def largest(tiles: Iterator[NamedTile]) -> float:
        max_abs = 0.0
        scratch = np.empty(BLOCK_ELEMENTS, np.float32)
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused below
            for name, first, values in tiles:
                for start, stop in tile_ranges(len(values), BLOCK_ELEMENTS):
                    old = base.read_range(name, first + start, first + stop)
                    delta = np.subtract(values[start:stop], old, out=scratch[: stop - start])
                    max_abs = max(max_abs, _finite_max_abs(delta, name, first + start))
        return max_abs

    max_abs = max(run_in_threads(named_tiles(update, base), largest, threads_for(base)))
    if max_abs >= MAX_ABS_LIMIT:
        raise WeightsError(f"update: differs from the base by up to {max_abs:.6g}, less than 2**30 expected")
    return max_abs


def norms_of(update: TileSource, base: TensorFile, norm: Norm = "2") -> dict[str, float]:
    """Each tensor's ||delta||_p, float64, p = 1, 2 or inf. Raises WeightsError for a delta that is not finite."""

    def partial(tiles: Iterator[NamedTile]) -> list[tuple[str, float]]:
        parts = []
        scratch = np.empty(BLOCK_ELEMENTS, np.float64)
        for name, first, values in tiles:
            for start, stop in tile_ranges(len(values), BLOCK_ELEMENTS):
                old = base.read_range(name, first + start, first + stop)
                delta = scratch[: stop - start]
                with np.errstate(invalid="ignore"):
                    np.subtract(values[start:stop], old, out=delta, dtype=np.float64)
                max_abs = _finite_max_abs(delta, name, first + start)
                parts.append((name, _part_of_norm(delta, norm, max_abs)))
        return parts

    gathered: dict[str, list[float]] = {name: [0.0] for name in base.specs}
    for parts in run_in_threads(named_tiles(update, base), partial, threads_for(base)):
        for name, part in parts:
            gathered[name].append(part)
    return {name: _whole_norm(parts, norm) for name, parts in gathered.items()}


def _finite_max_abs(delta: Array, name: str, start: int) -> float:
    if not len(delta):
        return 0.0
    max_abs = max(float(delta.max()), -float(delta.min()))
    if not math.isfinite(max_abs):
        at = int(np.argmin(np.isfinite(delta)))
        raise WeightsError(
            f"update: tensor {name}: element {start + at} differs from the base by {delta[at]}, "
            "expected a finite number"
        )
    return max_abs


def _part_of_norm(delta: Array, norm: Norm, max_abs: float) -> float:
    if norm == "1":
        return float(np.abs(delta, out=delta).sum())
    if norm == "2":
        return float(np.einsum("i,i->", delta, delta))  # not BLAS, whose threads would share the sum
    return max_abs


def _whole_norm(parts: list[float], norm: Norm) -> float:
    if norm == "1":
        return math.fsum(parts)
    return math.sqrt(math.fsum(parts)) if norm == "2" else max(parts)
