"""The deltas of all K updates of a round, stacked block by block: [K, n] for each run of n elements."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from phonograd.device_runtime.base.errors import WeightsError
from phonograd.device_runtime.formats.tensor_file import TILE_ELEMENTS, Array, TensorFile, all_tiles, tile_ranges
from phonograd.device_runtime.update.update_file import Tile
from phonograd.server_agg.aggregation.strategy import MAX_STACKED_UPDATES, ClientUpdate, sorted_by_hash

# float64 elements of one block: 16 MiB.
BLOCK_ELEMENTS = 1 << 21


def stacked_deltas(updates: Sequence[ClientUpdate], base: TensorFile) -> Iterator[Array]:
    """Blocks of deltas, float64 [K, n], in the base's file order; rows sorted by hash, n depends on K.

    Every tile of `tile_ranges` consists of whole blocks. Raises WeightsError for more than MAX_STACKED_UPDATES updates.
    """
    if len(updates) > MAX_STACKED_UPDATES:
        raise WeightsError(f"{len(updates)} updates in a round, the limit of this strategy is {MAX_STACKED_UPDATES}")
    length = block_length(len(updates))
    with contextlib.ExitStack() as stack:
        sources = [stack.enter_context(update.open()) for update in sorted_by_hash(updates)]
        for name, spec in base.specs.items():
            streams = [_Stream(source.tiles(spec)) for source in sources]
            for start, stop in tile_ranges(spec.elements, length):
                old = base.read_range(name, start, stop)
                block = np.zeros((len(streams), stop - start), np.float64)
                for row, stream in zip(block, streams, strict=True):
                    stream.put_deltas(row, start, old)
                yield block


def block_length(count: int) -> int:
    """The block length n for `count` updates: a power of two, so that blocks fill tiles."""
    share = max(1, BLOCK_ELEMENTS // max(1, count))
    return min(TILE_ELEMENTS, 1 << (share.bit_length() - 1))


def as_tiles(runs: Iterator[Array], base: TensorFile) -> Iterator[Array]:
    """Joins runs of float64 elements (one per block) into tiles in the base's file order."""
    for _, start, stop in all_tiles(base.specs):
        tile = np.empty(stop - start, np.float64)
        filled = 0
        while filled < len(tile):
            run = next(runs)
            tile[filled : filled + len(run)] = run
            filled += len(run)
        yield tile


def zero_deltas(base: TensorFile) -> Iterator[Array]:
    """Tiles of 0.0 in the base's file order."""
    for _, start, stop in all_tiles(base.specs):
        yield np.zeros(stop - start, np.float64)


@dataclass
class _Stream:
    """One update's tiles of one tensor, read as needed."""

    tiles: Iterator[Tile]
    start: int = 0
    values: Array = field(default_factory=lambda: np.empty(0, np.float32))  # read but not used yet, from `start`

    def put_deltas(self, out: Array, first: int, old: Array) -> None:
        end = first + len(out)
        while self._ready() and self.start < end:
            count = min(len(self.values), end - self.start)
            place = slice(self.start - first, self.start - first + count)
            np.subtract(self.values[:count], old[place], out=out[place], dtype=np.float64)
            self.start, self.values = self.start + count, self.values[count:]

    def _ready(self) -> bool:
        while not len(self.values):
            tile = next(self.tiles, None)
            if tile is None:
                return False
            self.start, self.values = tile
        return True
