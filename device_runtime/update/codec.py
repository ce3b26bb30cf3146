"""What a codec of updates is: a pure pair of encode and decode, a tensor at a time."""

from collections.abc import Iterable, Iterator
from typing import Protocol

from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, TensorSpec

# A run of trained weights: index of its first element in the flattened tensor, and the float32 values.
Tile = tuple[int, Array]


class Codec(Protocol):
    """Turns a trained tensor into the parts that travel, and those back into trained weights.

    Elements that `decode` does not yield are as in the base model: an untouched row costs nothing on the wire and
    nothing in the fold. All tensors are float32; a codec holds no more than one tensor. `seed` is the update's: what
    is random is the same for the same seed, and decodes with no other.
    """

    @property
    def name(self) -> str:
        """What the file's metadata calls it."""
        ...

    def nbytes(self, specs: Iterable[TensorSpec]) -> int | None:
        """Data bytes of an update of these tensors, where they are known before encoding; else None."""
        ...

    def encode(self, spec: TensorSpec, base: Array, trained: Array, seed: int) -> dict[str, Array]:
        """The parts of one tensor by name; every name begins with the tensor's own."""
        ...

    def expects(self, spec: TensorSpec, found: TensorFile) -> list[TensorSpec]:
        """Specs of the parts that `found` must hold for this tensor; none is larger than the tensor and a half.

        Raises UpdateError if they can't be told.
        """
        ...

    def decode(self, spec: TensorSpec, update: TensorFile, base: TensorFile, seed: int) -> Iterator[Tile]:
        """Trained weights of one tensor in tiles, in rising order. Raises UpdateError for parts that disagree."""
        ...
