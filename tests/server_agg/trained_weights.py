"""Trained weights in memory, which aggregation takes as it takes an update's file."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, TensorSpec, tile_ranges
from phonograd.device_runtime.update.update_file import Tile


@dataclass(frozen=True)
class TrainedWeights:
    """Tensors by name, float32 in the base's shapes."""

    weights: Mapping[str, Array]

    def tiles(self, spec: TensorSpec, base: TensorFile) -> Iterator[Tile]:
        """All elements, a tile at a time."""
        del base
        flat = self.weights[spec.name].reshape(-1)
        for start, stop in tile_ranges(spec.elements):
            yield start, flat[start:stop]
