"""One pass over an update that changes nothing: is it finite, how far does it reach, how long is each tensor's delta.

A delta is the trained weights less the base's. Sums run over blocks that fit a core's cache and are added up exactly
(math.fsum), so that neither threads nor their timing change a bit.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from phonograd.device_runtime.base.errors import WeightsError
from phonograd.device_runtime.formats.tensor_file import TILE_ELEMENTS, Array, TensorFile, TensorSpec, tile_ranges
from phonograd.device_runtime.update.codecs import Tile
from phonograd.server_agg.aggregation.parallel import THREADS, share_out

# Elements worked on at a time: float64 and int64 scratch of this many stay in a core's second-level cache.
BLOCK_ELEMENTS = 1 << 16

# An update further than this from its base is not a trained model: 2**30, where a fold's accumulators end too.
REACH_LIMIT = 2.0**30

Norm = Literal["1", "2", "inf"]


class TileSource(Protocol):
    """What can be folded: an UpdateFile, or weights in memory."""

    def tiles(self, spec: TensorSpec, base: TensorFile) -> Iterator[Tile]:
        """Trained weights of one tensor, (flat start, float32 values), rising; what is not yielded did not move.

        A tile stays as it is while later ones are taken.
        """
        ...


@dataclass(frozen=True)
class TrainedWeights:
    """Trained weights in memory, by name, float32 in the base's shapes; for simulations and tests."""

    weights: Mapping[str, Array]

    def tiles(self, spec: TensorSpec, base: TensorFile) -> Iterator[Tile]:
        """All elements, a tile at a time."""
        del base
        flat = self.weights[spec.name].reshape(-1)
        for start, stop in tile_ranges(spec.elements):
            yield start, flat[start:stop]


NamedTile = tuple[str, int, Array]


def named_tiles(update: TileSource, base: TensorFile) -> Iterator[NamedTile]:
    """All tiles of an update: (tensor, flat start, float32 values)."""
    for name, spec in base.specs.items():
        for start, values in update.tiles(spec, base):
            yield name, start, values


def threads_for(base: TensorFile) -> int:
    """Threads worth starting for a pass over this model."""
    return THREADS if sum(spec.elements for spec in base.specs.values()) > 2 * TILE_ELEMENTS else 1


def check_float32(base: TensorFile) -> None:
    """Raise WeightsError for a model that is not float32 throughout."""
    for spec in base.specs.values():
        if spec.dtype != "F32":
            raise WeightsError(f"{base.path}: tensor {spec}: a fold takes F32 models only; export the model again")


def reach_of(update: TileSource, base: TensorFile) -> float:
    """The largest |delta| of an update, to float32's precision. Raises WeightsError for one of 2**30 or not finite."""

    def largest(tiles: Iterator[NamedTile]) -> float:
        reach = 0.0
        scratch = np.empty(BLOCK_ELEMENTS, np.float32)
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused below
            for name, first, values in tiles:
                for start, stop in tile_ranges(len(values), BLOCK_ELEMENTS):
                    old = base.read_range(name, first + start, first + stop)
                    delta = np.subtract(values[start:stop], old, out=scratch[: stop - start])
                    reach = max(reach, _finite_reach(delta, name, first + start))
        return reach

    reach = max(share_out(named_tiles(update, base), largest, threads_for(base)))
    if reach >= REACH_LIMIT:
        raise WeightsError(f"update: differs from the base by up to {reach:.6g}, less than 2**30 expected")
    return reach


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
                reach = _finite_reach(delta, name, first + start)
                parts.append((name, _part_of_norm(delta, norm, reach)))
        return parts

    gathered: dict[str, list[float]] = {name: [0.0] for name in base.specs}
    for parts in share_out(named_tiles(update, base), partial, threads_for(base)):
        for name, part in parts:
            gathered[name].append(part)
    return {name: _whole_norm(parts, norm) for name, parts in gathered.items()}


def _finite_reach(delta: Array, name: str, start: int) -> float:
    if not len(delta):
        return 0.0
    reach = max(float(delta.max()), -float(delta.min()))
    if not math.isfinite(reach):
        at = int(np.argmin(np.isfinite(delta)))
        raise WeightsError(
            f"update: tensor {name}: element {start + at} differs from the base by {delta[at]}, "
            "expected a finite number"
        )
    return reach


def _part_of_norm(delta: Array, norm: Norm, reach: float) -> float:
    if norm == "1":
        return float(np.abs(delta, out=delta).sum())
    if norm == "2":
        return float(np.einsum("i,i->", delta, delta))  # not BLAS, whose threads would share the sum
    return reach


def _whole_norm(parts: list[float], norm: Norm) -> float:
    if norm == "1":
        return math.fsum(parts)
    return math.sqrt(math.fsum(parts)) if norm == "2" else max(parts)
