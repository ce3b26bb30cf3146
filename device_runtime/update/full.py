"""full-f32: every trained weight, as paper P sends them (174.43 MiB for the 2x650 model)."""

from collections.abc import Iterable, Iterator

from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, TensorSpec, tile_ranges
from phonograd.device_runtime.update.codec import Tile


class FullF32:
    """All weights in float32; the baseline every other codec is measured against."""

    name = "full-f32"

    def nbytes(self, specs: Iterable[TensorSpec]) -> int | None:
        """Four bytes a parameter."""
        return sum(spec.nbytes for spec in specs)

    def encode(self, spec: TensorSpec, base: Array, trained: Array, seed: int) -> dict[str, Array]:
        """The trained tensor, as it is."""
        del base, seed
        return {spec.name: trained}

    def expects(self, spec: TensorSpec, found: TensorFile) -> list[TensorSpec]:
        """One part: the whole tensor."""
        del found
        return [spec]

    def decode(self, spec: TensorSpec, update: TensorFile, base: TensorFile, seed: int) -> Iterator[Tile]:
        """All weights, a tile at a time."""
        del base, seed
        for start, stop in tile_ranges(spec.elements):
            yield start, update.read_range(spec.name, start, stop)
