"""Norms of an update's delta, in one pass over it; also checks that all values are finite.

The delta is trained weights minus base weights. Sums run over blocks that fit a core's cache and are added exactly
(math.fsum), so that the result does not depend on threads.
"""

import math
from collections.abc import Iterator
from typing import Any, Literal

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

# No trained model is this far from its base, and a fold's accumulators end here too.
MAX_ABS_LIMIT = 2.0**30

Norm = Literal["1", "2", "inf"]


def max_abs_delta(update: TileSource, base: TensorFile) -> float:
    """The largest |delta| of an update, in float32 precision. Raises WeightsError unless it is below 2**30."""

    def largest(tiles: Iterator[NamedTile]) -> float:
        return max((max_abs for _, _, max_abs in _deltas(tiles, base, np.float32)), default=0.0)

    max_abs = max(run_in_threads(named_tiles(update, base), largest, threads_for(base)))
    if max_abs >= MAX_ABS_LIMIT:
        raise WeightsError(f"update: expected differences from the base below 2**30, found {max_abs:.6g}")
    return max_abs


def norms_of(update: TileSource, base: TensorFile, norm: Norm = "2") -> dict[str, float]:
    """Each tensor's ||delta||_p, float64, p = 1, 2 or inf. Raises WeightsError for a delta that is not finite."""

    def partial(tiles: Iterator[NamedTile]) -> list[tuple[str, float]]:
        deltas = _deltas(tiles, base, np.float64)
        return [(name, _part_of_norm(delta, norm, max_abs)) for name, delta, max_abs in deltas]

    gathered: dict[str, list[float]] = {name: [0.0] for name in base.specs}
    for parts in run_in_threads(named_tiles(update, base), partial, threads_for(base)):
        for name, part in parts:
            gathered[name].append(part)
    return {name: _whole_norm(parts, norm) for name, parts in gathered.items()}


def _deltas(
    tiles: Iterator[NamedTile], base: TensorFile, dtype: type[np.floating[Any]]
) -> Iterator[tuple[str, Array, float]]:
    """Block by block: the tensor, its delta, which is valid until the next one, and the largest |delta|."""
    scratch = np.empty(BLOCK_ELEMENTS, dtype)
    for name, first, values in tiles:
        for start, stop in tile_ranges(len(values), BLOCK_ELEMENTS):
            old = base.read_range(name, first + start, first + stop)
            delta = scratch[: stop - start]
            with np.errstate(over="ignore", invalid="ignore"):  # checked below
                np.subtract(values[start:stop], old, out=delta, dtype=dtype)
            yield name, delta, _finite_max_abs(delta, name, first + start)


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
        return float(np.einsum("i,i->", delta, delta))  # not BLAS, which splits sums among threads
    return max_abs


def _whole_norm(parts: list[float], norm: Norm) -> float:
    if norm == "1":
        return math.fsum(parts)
    return math.sqrt(math.fsum(parts)) if norm == "2" else max(parts)
