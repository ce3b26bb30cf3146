"""The fold: the one place that adds weights.

Updates are summed as fixed-point integers. Integer addition has no rounding, so the sum is the same to the bit whatever
the order in which updates arrive, however they are split over folds that are merged later, and after a restart that
folds them again. Memory is one int64 per parameter and a few tiles, whatever the number of phones.
"""

import hashlib
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from device_runtime.codecs import Tile
from device_runtime.errors import WeightsError
from device_runtime.tensor_file import TILE_ELEMENTS, Array, TensorFile, TensorSpec, tile_ranges

# One step of the fixed point is 2**-32: an update is off by 1.2e-10 at most, a hundredth of float32's spacing near 0.1.
FRACTION_BITS = 32
STEPS_PER_UNIT = 2.0**FRACTION_BITS
# Sums stay below 2**62, so that adding one more term can't leave int64 before it is refused.
SUM_LIMIT = 1 << 62

MAGIC = b"PHGFOLD\x00"
BYTES_VERSION = 1
# magic, version, fraction bits, base SHA-256, hash of the tensor table, updates, total weight, bound on |sum|
HEADER = struct.Struct("<8sII32s32sQQQ")


class TileSource(Protocol):
    """What can be folded: an UpdateFile, or weights in memory."""

    def tiles(self, spec: TensorSpec, base: TensorFile) -> Iterator[Tile]:
        """Trained weights of one tensor, (flat start, float32 values); what is not yielded did not move."""
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


class Fold:
    """The weighted sum of the updates of one round, relative to its base model.

    `base` (all tensors F32) must stay open as long as the fold is used; it is read by position, a tile at a time.
    `base_sha256` is its hex hash. Not thread-safe. Raises WeightsError for a base that is not float32 throughout.
    """

    def __init__(self, base: TensorFile, base_sha256: str):
        for spec in base.specs.values():
            if spec.dtype != "F32":
                raise WeightsError(f"{base.path}: tensor {spec}: a fold takes F32 models only; export the model again")
        self.base = base
        self.base_sha256 = base_sha256
        self.updates = 0
        self.total_weight = 0
        self._bound = 0  # no |sum| is larger
        self._sums = {name: np.zeros(spec.elements, np.int64) for name, spec in base.specs.items()}
        self._delta = np.empty(TILE_ELEMENTS, np.float64)
        self._steps = np.empty(TILE_ELEMENTS, np.int64)

    def accumulate(self, update: TileSource, weight: int) -> None:
        """Add weight x (update - base). `weight` is at least 1 (ValueError otherwise).

        Reads the update twice: once to see that it fits, then to add it. Raises WeightsError, with nothing changed, for
        values that are not finite and for sums that would leave the accumulators.
        """
        if weight < 1:
            raise ValueError(f"weight is {weight}, expected at least 1")
        bound = self._bound + weight * self._largest_step(update)
        _check_room(bound, self.total_weight + weight)
        for name, start, delta in self._deltas(update):
            np.multiply(delta, STEPS_PER_UNIT, out=delta)
            np.rint(delta, out=delta)
            steps = self._steps[: len(delta)]
            np.copyto(steps, delta, casting="unsafe")  # whole numbers below 2**62: exact
            np.multiply(steps, weight, out=steps)
            sums = self._sums[name][start : start + len(delta)]
            np.add(sums, steps, out=sums)
        self._bound = bound
        self.total_weight += weight
        self.updates += 1

    def merge(self, other: "Fold") -> None:
        """Add another fold of the same base. Raises WeightsError, with nothing changed, for another base or no room."""
        if (other.base_sha256, other.base.specs) != (self.base_sha256, self.base.specs):
            raise WeightsError(
                f"fold of model {self.base_sha256[:12]}… cannot take in one of model {other.base_sha256[:12]}…; "
                "merge folds of one round only"
            )
        bound = self._bound + other._bound
        _check_room(bound, self.total_weight + other.total_weight)
        for name, sums in self._sums.items():
            np.add(sums, other._sums[name], out=sums)
        self._bound = bound
        self.total_weight += other.total_weight
        self.updates += other.updates

    def finish(self) -> Iterator[Array]:
        """The weighted average of all updates, float32 tiles in the base's file order, ready for `write_tensor_file`.

        base + sum / (total weight x 2**32), computed in float64. Elements that no update moved keep the base's bits.
        """
        divisor = self.total_weight * STEPS_PER_UNIT
        for name, spec in self.base.specs.items():
            for start, stop in tile_ranges(spec.elements):
                tile = self.base.read_range(name, start, stop)
                sums = self._sums[name][start:stop]
                moved = sums != 0  # untouched elements keep their bits: -0.0 + 0.0 would be 0.0
                if moved.any():
                    delta = self._delta[: stop - start]
                    np.divide(sums, divisor, out=delta)
                    np.add(delta, tile, out=delta)
                    np.copyto(tile, delta, casting="same_kind", where=moved)
                yield tile

    def average(self) -> dict[str, Array]:
        """What `finish` streams, as tensors in memory."""
        tiles = self.finish()
        average = {}
        for name, spec in self.base.specs.items():
            parts = [next(tiles) for _ in tile_ranges(spec.elements)]
            average[name] = np.concatenate([np.empty(0, np.float32), *parts]).reshape(spec.shape)
        return average

    def to_bytes(self) -> bytes:
        """The fold as bytes: HEADER, then the sums in file order, int64 little endian."""
        header = HEADER.pack(
            MAGIC,
            BYTES_VERSION,
            FRACTION_BITS,
            bytes.fromhex(self.base_sha256),
            _table_hash(self.base),
            self.updates,
            self.total_weight,
            self._bound,
        )
        return b"".join([header, *(sums.astype("<i8", copy=False).data for sums in self._sums.values())])

    @classmethod
    def from_bytes(cls, data: bytes, base: TensorFile, base_sha256: str) -> "Fold":
        """Read what `to_bytes` wrote. Raises WeightsError for bytes that are not a whole fold of this base."""
        fold = cls(base, base_sha256)
        fold._read_header(data)
        offset = HEADER.size
        for name, sums in fold._sums.items():
            np.copyto(sums, np.frombuffer(data, "<i8", len(sums), offset))
            offset += sums.nbytes
            if len(sums) and max(int(sums.max()), -int(sums.min())) > fold._bound:
                raise WeightsError(f"fold: tensor {name}: a sum is larger than the bound {fold._bound}; bytes damaged")
        return fold

    def _read_header(self, data: bytes) -> None:
        expected = HEADER.size + sum(sums.nbytes for sums in self._sums.values())
        if len(data) != expected:
            raise WeightsError(f"fold: {expected} bytes expected for this model, found {len(data)}; fold again")
        magic, version, bits, sha, table, updates, weight, bound = HEADER.unpack_from(data)
        facts: tuple[tuple[str, int | str, int | str], ...] = (
            ("magic", magic.hex(), MAGIC.hex()),
            ("version", version, BYTES_VERSION),
            ("fraction bits", bits, FRACTION_BITS),
            ("base model", sha.hex(), self.base_sha256),
            ("tensor table", table.hex(), _table_hash(self.base).hex()),
        )
        for what, found, wanted in facts:
            if found != wanted:
                raise WeightsError(f"fold: {what} {wanted} expected, found {found}; fold the round's updates again")
        if not (updates <= weight < SUM_LIMIT and bound < SUM_LIMIT and (updates > 0 or weight == bound == 0)):
            raise WeightsError(
                f"fold: {updates} updates of weight {weight} and bound {bound} contradict; bytes damaged"
            )
        self.updates, self.total_weight, self._bound = updates, weight, bound

    def _deltas(self, update: TileSource) -> Iterator[tuple[str, int, Array]]:
        """(tensor, flat start, float64 update - base) in scratch that the next step overwrites."""
        for name, spec in self.base.specs.items():
            for first, values in update.tiles(spec, self.base):
                for start, stop in tile_ranges(len(values)):  # a codec's tile is one row at least, however long
                    delta = self._delta[: stop - start]
                    old = self.base.read_range(name, first + start, first + stop)
                    np.subtract(values[start:stop], old, out=delta, dtype=np.float64)
                    yield name, first + start, delta

    def _largest_step(self, update: TileSource) -> int:
        largest = 0.0
        for name, start, delta in self._deltas(update):
            reach = max(float(delta.max()), -float(delta.min()))
            if not np.isfinite(reach):
                at = int(np.argmin(np.isfinite(delta)))
                raise WeightsError(
                    f"update: tensor {name}: element {start + at} differs from the base by {delta[at]}, "
                    "expected a finite number"
                )
            largest = max(largest, reach)
        return int(np.rint(largest * STEPS_PER_UNIT))


def _check_room(bound: int, total_weight: int) -> None:
    if bound >= SUM_LIMIT or total_weight >= SUM_LIMIT:
        raise WeightsError(
            f"fold: weights x steps would reach {max(bound, total_weight)}, at most 2**62 fit; "
            "an update is far from the base model or claims too large a weight"
        )


def _table_hash(base: TensorFile) -> bytes:
    return hashlib.sha256("\n".join(map(str, base.specs.values())).encode()).digest()
