"""The fold: a running weighted sum of updates.

Updates are summed as fixed-point integers. Integer addition does not round, so the sum is the same to the bit in any
order of updates, for any split into folds that are merged later, and after a restart that folds them again. Memory is
one int64 per parameter and a few tiles, for any number of phones.
"""

import hashlib
import math
import struct
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from phonograd.device_runtime.base.errors import StorageError, UpdateError, WeightsError
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, all_tiles
from phonograd.device_runtime.update.update_file import DecodedUpdate
from phonograd.server_agg.aggregation.packed_sums import pack_tile, read_packed
from phonograd.server_agg.aggregation.parallel import prefetch

# One step of the fixed point is 2**-32: an update is off by 1.2e-10 at most, a hundredth of float32's spacing near 0.1.
FRACTION_BITS = 32
# Sums stay below 2**62, so that adding one more term cannot overflow int64 before the check.
SUM_LIMIT = 1 << 62
# Bounds are products of norms and scales, which may be rounded down.
MAX_ABS_MARGIN = 1 + 2.0**-22
# No trained model is this far from its base, and a fold's accumulators end here too.
MAX_ABS_LIMIT = 2.0**30

MAGIC = b"PHGFOLD\x00"
BYTES_VERSION = 1
# magic, version, fraction bits, base SHA-256, hash of the tensor table, updates, total weight, bound on |sum|
HEADER = struct.Struct("<8sII32s32sQQQ")


@dataclass(frozen=True)
class _Head:
    """What a fold has beside its sums; bound: on each |sum|."""

    updates: int
    total_weight: int
    bound: int


class SumLimitError(WeightsError):
    """The updates of a round that could overflow their sum."""


class Fold:
    """The weighted sum of the updates of one round, relative to its base model.

    `base` (all tensors F32) must stay open while the fold is used; it is read by position, one tile at a time.
    `base_sha256` is its hex hash. `fraction_bits`: one step of the fixed point is 2**-fraction_bits. Not thread-safe.
    Raises WeightsError for a base with other tensors than F32.
    """

    def __init__(self, base: TensorFile, base_sha256: str, fraction_bits: int = FRACTION_BITS):
        check_float32(base)
        self.base = base
        self.base_sha256 = base_sha256
        self.updates = 0
        self.total_weight = 0
        self._bits = fraction_bits
        self._steps_per_unit = 2.0**fraction_bits
        self._incomplete = False
        self._sums = {name: np.zeros(spec.elements, np.int64) for name, spec in base.specs.items()}
        self._bounds = dict.fromkeys(self._sums, 0)  # by tensor: upper bound on |sum|

    def accumulate(
        self,
        update: DecodedUpdate,
        weight: int,
        max_abs: float | Mapping[str, float] | None = None,
        scales: Mapping[str, float] | None = None,
    ) -> None:
        """Add weight x (update - base), rounded to steps. `weight` is at least 1; or minus that of an update that was
        added, which takes it out again, to the bit. ValueError for 0.

        update: on the fold's base. scales: a factor for each tensor's delta; steps are then rounded towards zero, so
        that no norm grows. max_abs: an upper bound on the scaled |delta|, of all tensors or of each; None: measured.
        Raises WeightsError, with nothing changed, for values that are not finite, and SumLimitError. If
        an update cannot be read to its end, the fold is unusable: all later calls raise StorageError.
        """
        if weight == 0:
            raise ValueError(f"weight is {weight}, expected at least 1")
        if max_abs is None:
            max_abs = max_abs_delta(update) * max((scales or {}).values(), default=1.0)
        self._check_usable()
        bounds = self._bounds_with(weight, max_abs)
        self._incomplete = True
        update.add(self._sums, self._steps_per_unit, weight, scales)
        self._count(weight, bounds)

    def take(self, update: DecodedUpdate, weight: int) -> float:
        """`accumulate` an update in the pass that measures it. Returns its largest |delta|; raises as `accumulate`."""
        self._check_usable()
        self._incomplete = True
        try:
            max_abs = _checked_reach(update.take(self._sums, self._steps_per_unit, weight, MAX_ABS_LIMIT))
        except (WeightsError, UpdateError):
            self._incomplete = False
            raise
        try:
            bounds = self._bounds_with(weight, max_abs)
        except SumLimitError:
            update.add(self._sums, self._steps_per_unit, -weight)
            self._incomplete = False
            raise
        self._count(weight, bounds)
        return max_abs

    def _bounds_with(self, weight: int, max_abs: float | Mapping[str, float]) -> dict[str, int]:
        max_abs_by_tensor = max_abs if isinstance(max_abs, Mapping) else dict.fromkeys(self._sums, max_abs)
        bounds = {
            name: bound + weight * math.ceil(max_abs_by_tensor[name] * self._steps_per_unit * MAX_ABS_MARGIN)
            for name, bound in self._bounds.items()
        }
        _check_room(bounds, self.total_weight + weight)
        return bounds

    def _count(self, weight: int, bounds: dict[str, int]) -> None:
        self._incomplete = False
        self._bounds = bounds
        self.total_weight += weight
        self.updates += 1 if weight > 0 else -1

    def merge(self, other: "Fold") -> None:
        """Add another fold of the same base. Raises WeightsError, with nothing changed, for another base, and
        SumLimitError."""
        if (other.base_sha256, other.base.specs, other._bits) != (self.base_sha256, self.base.specs, self._bits):
            raise WeightsError(
                f"fold: expected a fold of model {self.base_sha256[:12]}…, found one of {other.base_sha256[:12]}…; "
                "merge only folds of the same round"
            )
        self._check_usable()
        other._check_usable()
        tiles = (other._sums[name][start:stop] for name, start, stop in all_tiles(self.base.specs))
        self._merge(_Head(other.updates, other.total_weight, other._bound), tiles)

    def pack(self) -> Iterator[bytes]:
        """The fold for `merge_packed` of another process, piece by piece: its head, then its tiles."""
        self._check_usable()
        yield self._packed_head()
        for name, start, stop in all_tiles(self.base.specs):
            yield pack_tile(self._sums[name][start:stop])

    def merge_packed(self, file: BinaryIO, updates: int) -> None:
        """Add what `pack` of another fold gave, a tile at a time. updates: how many it must have.

        file: whose checksum was right. Raises as `merge` does, and WeightsError for another fold, with nothing changed;
        after one for a sum beyond the bound in its head, this fold is unusable.
        """
        head = self._head_of(file.read(HEADER.size))
        if head.updates != updates:
            raise WeightsError(
                f"fold: {updates} updates expected, found {head.updates}; fold the round's updates again"
            )
        self._merge(head, (read_packed(file, stop - start) for _, start, stop in all_tiles(self.base.specs)))

    def _merge(self, head: _Head, tiles: Iterator[Array]) -> None:
        self._check_usable()
        bounds = {name: bound + head.bound for name, bound in self._bounds.items()}
        _check_room(bounds, self.total_weight + head.total_weight)
        self._incomplete = True
        for (name, start, stop), tile in zip(all_tiles(self.base.specs), tiles, strict=True):
            if max(int(tile.max()), -int(tile.min())) > head.bound:
                raise WeightsError(f"fold: tensor {name}: a sum exceeds the bound {head.bound}; the bytes are damaged")
            np.add(self._sums[name][start:stop], tile, out=self._sums[name][start:stop])
        self._incomplete = False
        self._bounds = bounds
        self.total_weight += head.total_weight
        self.updates += head.updates

    def deltas(self, divisor: float | None = None) -> Iterator[Array]:
        """sum / divisor as new float64 tiles in the base's file order. divisor: None for the total weight.

        Exactly 0.0 where no update changed anything, and everywhere in an empty fold.
        """
        self._check_usable()
        steps = (divisor or self.total_weight or 1) * self._steps_per_unit
        for name, start, stop in all_tiles(self.base.specs):
            yield np.divide(self._sums[name][start:stop], steps)

    def finish(self) -> Iterator[Array]:
        """The weighted average of all updates, float32 tiles in the base's file order, ready for `write_tensor_file`.

        base + sum / (total weight x 2**32), computed in float64. Elements that no update changed keep the base's bits.
        """
        return prefetch(self._average_tiles())

    def _average_tiles(self) -> Generator[Array, None, None]:
        deltas = self.deltas()
        for name, start, _ in all_tiles(self.base.specs):
            yield apply_delta(self.base, name, start, next(deltas))

    def to_bytes(self) -> bytes:
        """The fold as bytes: HEADER, then the sums in file order, int64 little endian."""
        self._check_usable()
        return b"".join([self._packed_head(), *(sums.astype("<i8", copy=False).data for sums in self._sums.values())])

    def _packed_head(self) -> bytes:
        return HEADER.pack(
            MAGIC,
            BYTES_VERSION,
            self._bits,
            bytes.fromhex(self.base_sha256),
            _table_hash(self.base),
            self.updates,
            self.total_weight,
            self._bound,
        )

    @classmethod
    def from_bytes(cls, data: bytes | memoryview, base: TensorFile, base_sha256: str) -> "Fold":
        """Parse the output of `to_bytes`. Raises WeightsError for bytes that are not a complete fold of this base."""
        fold = cls(base, base_sha256)
        expected = HEADER.size + sum(sums.nbytes for sums in fold._sums.values())
        if len(data) != expected:
            raise WeightsError(f"fold: expected {expected} bytes for this model, found {len(data)}; fold again")
        head = fold._head_of(data)
        fold._merge(head, fold._cut(np.frombuffer(data, "<i8", offset=HEADER.size)))
        return fold

    def _cut(self, sums: Array) -> Iterator[Array]:
        at = 0
        for _, start, stop in all_tiles(self.base.specs):
            yield sums[at : at + stop - start]
            at += stop - start

    @property
    def _bound(self) -> int:
        return max(self._bounds.values(), default=0)

    def _head_of(self, data: bytes | memoryview) -> _Head:
        magic, version, bits, sha, table, updates, weight, bound = HEADER.unpack_from(data)
        facts: tuple[tuple[str, int | str, int | str], ...] = (
            ("magic", magic.hex(), MAGIC.hex()),
            ("version", version, BYTES_VERSION),
            ("fraction bits", bits, FRACTION_BITS),
            ("base model", sha.hex(), self.base_sha256),
            ("tensor table", table.hex(), _table_hash(self.base).hex()),
        )
        for what, value, wanted in facts:
            if value != wanted:
                raise WeightsError(f"fold: expected {what} {wanted}, found {value}; fold the round's updates again")
        if not (updates <= weight < SUM_LIMIT and bound < SUM_LIMIT and (updates > 0 or weight == bound == 0)):
            raise WeightsError(
                f"fold: {updates} updates of weight {weight} and bound {bound} contradict; the bytes are damaged"
            )
        return _Head(updates, weight, bound)

    def _check_usable(self) -> None:
        if self._incomplete:
            raise StorageError("fold: an update could not be read to its end; fold the round's updates again")


def max_abs_delta(update: DecodedUpdate) -> float:
    """The largest |delta| of an update. Raises WeightsError unless it is finite and below 2**30."""
    return _checked_reach(max(update.norms("inf").values(), default=0.0))


def _checked_reach(max_abs: float) -> float:
    if max_abs >= MAX_ABS_LIMIT:
        raise WeightsError(f"update: expected differences from the base below 2**30, found {max_abs:.6g}")
    return max_abs


def check_float32(base: TensorFile) -> None:
    """Raise WeightsError for a model with other tensors than F32."""
    for spec in base.specs.values():
        if spec.dtype != "F32":
            raise WeightsError(f"{base.path}: tensor {spec}: expected F32; export the model again")


def apply_delta(base: TensorFile, name: str, start: int, delta: Array) -> Array:
    """A float32 tile of base + delta, from element `start` of a tensor. Where delta is 0.0, the base's bits stay.

    Overwrites `delta` (float64).
    """
    tile = base.read_range(name, start, start + len(delta))
    moving = delta != 0  # -0.0 + 0.0 would be 0.0
    np.add(delta, tile, out=delta)
    np.copyto(tile, delta, casting="same_kind", where=moving)
    return tile


def _check_room(bounds: Mapping[str, int], total_weight: int) -> None:
    bound = max(bounds.values(), default=0)
    if bound >= SUM_LIMIT or total_weight >= SUM_LIMIT:
        raise SumLimitError(
            f"fold: weights x steps would reach {max(bound, total_weight)}, the limit is 2**62; "
            "an update is far from the base model or claims too large a weight"
        )


def _table_hash(base: TensorFile) -> bytes:
    return hashlib.sha256("\n".join(map(str, base.specs.values())).encode()).digest()
