"""Trained weights of an update, tile by tile, and what every pass over them needs."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import numpy as np

from phonograd.device_runtime.base.errors import WeightsError
from phonograd.device_runtime.formats.tensor_file import TILE_ELEMENTS, Array, TensorFile, TensorSpec
from phonograd.device_runtime.update.update_file import Tile, UpdateFile
from phonograd.server_agg.aggregation.parallel import THREADS

# Elements worked on at a time: float64 and int64 scratch of this many stay in a core's second-level cache.
BLOCK_ELEMENTS = 1 << 16
# 16 MB: an update by top-rows has 2 million, and decoding it takes longer than what is done with it.
HELD_ELEMENTS = 1 << 22


class TileSource(Protocol):
    """Trained weights that can be aggregated: an UpdateFile, or its tiles held in memory."""

    def tiles(self, spec: TensorSpec, base: TensorFile) -> Iterator[Tile]:
        """Trained weights of one tensor as (flat start, float32 values), ascending; elements not yielded are unchanged.

        A tile stays valid while later ones are read.
        """
        ...


class CachedTiles:
    """The tiles of `source`, decoded once for several passes if they have at most HELD_ELEMENTS elements in all.

    More are decoded in each pass; what was held until then is freed.
    """

    def __init__(self, source: TileSource):
        self._source = source
        self._room = HELD_ELEMENTS
        self._held: dict[str, list[Tile]] = {}

    def tiles(self, spec: TensorSpec, base: TensorFile) -> Iterator[Tile]:
        """Those of one tensor."""
        if spec.name in self._held:
            yield from self._held[spec.name]
            return
        kept: list[Tile] = []
        for tile in self._source.tiles(spec, base):
            self._room -= len(tile[1])
            if self._room < 0:
                self._held, kept = {}, []
            else:
                kept.append(tile)
            yield tile
        if self._room >= 0:
            self._held[spec.name] = kept


class RebasedUpdate:
    """A late update, moved onto the open round's model: its delta, added to the new base."""

    def __init__(self, update: UpdateFile, its_base: TensorFile):
        self._update = update
        self._its_base = its_base

    def tiles(self, spec: TensorSpec, base: TensorFile) -> Iterator[Tile]:
        """base + (trained - its base), float32, of the elements that the update contains."""
        for start, values in self._update.tiles(spec, self._its_base):
            stop = start + len(values)
            moved = values.astype(np.float64)
            moved -= self._its_base.read_range(spec.name, start, stop)
            moved += base.read_range(spec.name, start, stop)
            yield start, moved.astype(np.float32)


@contextlib.contextmanager
def rebased(update: UpdateFile, its_base: Path | None) -> Iterator[TileSource]:
    """The tiles of an open update on the open round's model. its_base: the model of a late update, else None."""
    if its_base is None:
        yield update
        return
    with TensorFile(its_base) as opened:
        yield RebasedUpdate(update, opened)


NamedTile = tuple[str, int, Array]


def named_tiles(update: TileSource, base: TensorFile) -> Iterator[NamedTile]:
    """All tiles of an update: (tensor, flat start, float32 values)."""
    for name, spec in base.specs.items():
        for start, values in update.tiles(spec, base):
            yield name, start, values


def threads_for(base: TensorFile) -> int:
    """The number of threads for a pass over this model."""
    return THREADS if sum(spec.elements for spec in base.specs.values()) > 2 * TILE_ELEMENTS else 1


def check_float32(base: TensorFile) -> None:
    """Raise WeightsError for a model with other tensors than F32."""
    for spec in base.specs.values():
        if spec.dtype != "F32":
            raise WeightsError(f"{base.path}: tensor {spec}: expected F32; export the model again")
